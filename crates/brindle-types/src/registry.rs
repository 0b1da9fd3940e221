codes! {
    // 1xxx: configuration and command line
    1001 BadArgument EINVAL "cannot use this argument" "see the command's --help"
        "An argument of a command has a value that cannot work. Nothing was changed. The message names the argument, the value and what is possible.";
    1002 UnknownConfigKey EINVAL "unknown key in configuration" "correct the key, then run the command again"
        "A configuration file has a key that this version does not know. Brindle refuses unknown keys, because a misspelt setting that is silently ignored is worse than one that is refused. The message names the nearest known key.";
    1003 BadConfigValue EINVAL "wrong value in configuration" "correct the value, then run the command again"
        "A configuration file has a value outside of what the key allows. The message names the key, the value and the allowed range.";
    1004 AlreadyFormatted EEXIST "cannot format: it holds a target already" "give another directory, or add --reformat --yes to destroy what it holds"
        "The directory holds a formatted target. Formatting it again would destroy its data, so it is refused unless --reformat is given.";
    1005 ForeignTarget EINVAL "cannot serve: it belongs to another file system" "check the directory you gave"
        "The superblock of this target names another file system, role or index than was asked for. Serving it would mix data of two file systems.";
    1006 NotATarget EINVAL "cannot serve: not a formatted target" "if a target was here: mount its disk; only a new target is made with: brindle format"
        "The directory has no superblock. Either its disk is not mounted, or the path is wrong, or it was never formatted. Formatting makes a new, empty target: never do that in place of a target whose disk is only not mounted.";
    1007 BadSuperblock EIO "cannot serve: the superblock is damaged" "restore the superblock file from its copy (superblock.copy)"
        "The superblock's checksum does not match its contents in either of its two copies. The target is not served, because its identity is not certain. The data itself is not touched.";
    1008 AddressInUse EBUSY "cannot listen: the address is in use" "stop the other process, or give another port"
        "Another process listens on this address. Two servers of one target would destroy its data, so the start is refused.";
    1009 NoFuseDevice ENODEV "cannot mount: /dev/fuse is missing" "load the module: modprobe fuse (in a container: give it the device /dev/fuse)"
        "Mounting needs the kernel's FUSE device. It is missing, or this process may not open it.";
    1010 KernelTooOld ENOSYS "cannot mount: the kernel is too old" "boot Linux 6.6 or newer"
        "The mount needs features of FUSE that came with Linux 6.6 (direct I/O with shared mmap, among others).";
    1011 MountFailed EIO "cannot mount" ""
        "The kernel refused the mount, or the file system could not be reached. The causes are in the message.";
    1012 TargetBusy EBUSY "cannot serve: another process serves this target" "find it: brindle dev status, or ps"
        "The target's directory is locked by a running process. Two servers of one target would destroy its data, so the second is refused.";
    1013 ClusterExists EEXIST "cannot start: a cluster runs already" ""
        "A development cluster with this directory is running.";
    1014 NoSuchCluster ENOENT "no development cluster" "start one: brindle dev up"
        "The directory holds no development cluster.";
    1015 ProcessFailed EIO "a server process ended" "read its log"
        "A process of the cluster ended before it was usable. The last lines of its log are in the message.";
    1016 NotABrindlePath ENOTTY "not in a Brindle file system" ""
        "The command works on files of a mounted Brindle file system, and this path is not in one.";
    1017 NewerFormat EINVAL "cannot serve: written by a newer version" "upgrade this server"
        "The format on disk has a version that this release does not know. Nothing was changed.";
    1018 NotWritable EACCES "cannot write here" "give a directory that this user may write to"
        "A directory or file that has to be written cannot be: its permissions, a read-only file system or a full disk stand against it. The message has the system's reason.";
    1019 CommandFailed EIO "a command of the system failed" "read what it said"
        "Brindle ran a command of the system (mkfs.ext4, losetup, mount) and it failed. What it printed is in the message.";
    1020 NotMounted EINVAL "not a Brindle mount" "list them: findmnt -t fuse.brindle"
        "The path is not the root of a mounted Brindle file system, or its daemon does not answer.";
    1021 NeedsRoot EPERM "needs root" "run it as root"
        "Mounting, loop devices and targets of other users need root.";
    1022 TargetIncomplete EIO "cannot serve: a part of the target is missing" "find out where it went (another disk mounted, lost+found, a backup), put it back, then start the target again"
        "The directory has the superblock of a target that was in use, and some of its files are gone. Serving it would show holes in place of data, so the start is refused and nothing is changed.";
    1023 CannotPrint EIO "cannot print" "send its output where there is room"
        "Standard output took no more, as on a full disk. The command itself had done its work before; what it says is incomplete.";
    1030 BenchmarkFailed EIO "the benchmark cannot go on" "look at the file system that is measured, then run it again"
        "A system call of the benchmark failed on the directory that is measured, or one of its processes ended. What the benchmark had made was removed.";
    1031 WrongContents EIO "the benchmark read something else than it wrote" "keep this message: data was damaged between the program and the disk"
        "A benchmark fills files with bytes that follow from a seed, the file and the offset, and compares everything it reads. What it read differs. The message names the file, the offset, the bytes that were written and the bytes that were read.";
    1032 NoRoom ENOSPC "not enough free space" "free some, or measure less: --size, --files"
        "The file system of a directory that is measured has less free space or fewer free inodes than the benchmark will use. Nothing was written.";

    // 2xxx: client I/O
    2001 NotConnected EIO "not connected to the file system" ""
        "The client has no session with the metadata server. It retries until it has.";
    2002 SessionLost EIO "the client's session was ended by the server" "close and open the file again"
        "The client did not answer within its lease, so the server ended its session and fenced it, to let others go on. Handles that were open before are dead; new opens work.";
    2003 DataLost EIO "unsynced data was lost" "run the writer of this file again"
        "A storage server lost unsynced writes (power cut or failed disk write) that this client could not send again. The error stays on the file handle until it is closed.";
    2004 HandleStale ESTALE "the file of this handle no longer exists" "close the handle"
        "A power cut took the creation of this file before anybody synced it, so the handle has no file any more.";
    2005 Interrupted EINTR "interrupted by a signal" ""
        "The call was ended by a signal before it had an effect.";
    2006 OutcomeUnknown EIO "the outcome of the operation is unknown" "look whether it happened before you repeat it"
        "The server forgot the reply of an operation that was sent again, so it cannot say whether it was done. It is never executed twice.";
    2007 BadHandle EBADF "not an open handle" ""
        "The kernel named a file handle that this client does not have.";
    2008 Shutdown ENOTCONN "the file system is being unmounted" ""
        "The mount is going down and takes no new operations.";
    2009 TooLarge EFBIG "the file would become too large" ""
        "A file can have at most 2^63 - 1 bytes.";
    2010 TryAgain EAGAIN "would block" ""
        "The operation would have to wait, and the caller asked not to.";
    2011 NotSupported EOPNOTSUPP "not supported" ""
        "The operation or its flags are not supported on this kind of file.";
    2012 NoSuchIoctl ENOTTY "no such control operation" ""
        "Brindle has no control operation of that number.";
    2013 NoDataThere ENXIO "no data there" ""
        "A search for data or a hole began at or behind the end of the file, or there is no more data.";

    2014 OstUnreachable EIO "no answer from the OST" "look what is wrong with it: brindle status"
        "The OST has been unreachable for longer than the mount's option failout=SECONDS allows, so what needs it fails at once instead of waiting. Only files with data on this OST are concerned; others go on, and new ones are made elsewhere. What a program was told is written, and cannot be sent, is reported by fsync and close like any other lost write. When the OST is back everything works again without a new mount. Without the option, programs wait.";

    // 3xxx: MDS. The first ones are ordinary POSIX outcomes.
    3001 NotFound ENOENT "no such file or directory" ""
        "The name does not exist, or the file was removed.";
    3002 Exists EEXIST "file exists" ""
        "The name exists already.";
    3003 NotDirectory ENOTDIR "not a directory" ""
        "A directory was needed and something else is there.";
    3004 IsDirectory EISDIR "is a directory" ""
        "The operation does not work on directories.";
    3005 NotEmpty ENOTEMPTY "directory not empty" ""
        "Only empty directories can be removed or replaced.";
    3006 NameTooLong ENAMETOOLONG "name too long" "names have at most 255 bytes"
        "A name has more than 255 bytes, or a symbolic link's target more than 4095.";
    3007 InvalidArgument EINVAL "invalid argument" ""
        "A value of the call is not valid.";
    3008 PermissionDenied EACCES "permission denied" ""
        "The mode bits or the ACL do not allow this.";
    3009 NotPermitted EPERM "operation not permitted" ""
        "Only the owner or root may do this.";
    3010 TooManyLinks EMLINK "too many links" ""
        "A file can have at most 65000 hard links.";
    3011 NoXattr ENODATA "no such attribute" ""
        "The file has no extended attribute of this name.";
    3012 XattrTooLarge E2BIG "extended attribute too large" ""
        "An extended attribute can have at most 64 KiB.";
    3013 XattrRange ERANGE "result too large" ""
        "The buffer is too small for the attribute.";
    3014 MdtFull ENOSPC "the metadata target is full" "add an MDT, or remove files: removing always works"
        "The MDT has no space for new names or inodes. Space is kept in reserve so that removing always works.";
    3015 WouldDeadlock EDEADLK "the lock would deadlock" ""
        "Waiting for this lock would close a circle of processes that wait for each other.";
    3016 LockConflict EAGAIN "the range is locked by another process" ""
        "Another process holds a conflicting lock and the caller asked not to wait.";
    3017 TooManyLocks ENOLCK "too many locks" ""
        "The metadata server's table of locks is full.";
    3018 CrossDevice EXDEV "crosses file systems" ""
        "Names cannot be linked or renamed across file systems, nor into a directory whose project is inherited (lfs project -s) by a file of another project: its space would be counted wrongly. mv copies then; or set the project first: lfs project -p ID FILE.";
    3019 RenameLoop EINVAL "cannot move a directory into itself" ""
        "The new name lies below the directory that would be moved.";
    3020 StaleSession EIO "the session is not known" ""
        "The server does not know this client's session; the client opens a new one.";
    3021 StaleEpoch EAGAIN "sent under an old epoch" ""
        "The request carries an epoch that was fenced. The client fetches the new one and sends again.";
    3022 LogDamaged EIO "the metadata log is damaged" "restore the MDT from its backup, or run: brindle fsck"
        "A record of the MDT's log that had been synced has a wrong checksum. The MDT does not start, because everything behind it would be missing.";
    3023 KvDamaged EIO "the metadata store is damaged" "run: brindle fsck"
        "A row or a page of the MDT's store has a wrong checksum. It is not returned as data.";
    3024 LogFailed EIO "the metadata log cannot be written" "free or repair the disk, then start the MDT again"
        "Writing or syncing the MDT's log failed, so the MDT stopped: what was acknowledged is safe, and nothing more is acknowledged.";
    3025 StaleLayout EAGAIN "the layout has changed" ""
        "The client used an older layout of the file; it fetches the new one and tries again.";
    3026 BadStripe EINVAL "impossible stripe layout" ""
        "The stripe count, size or start OST asked for cannot be had. The message names the nearest possible value.";
    3027 LayoutFixed EEXIST "the file has data already, so its layout is fixed" "copy it into a new file that has the layout, or: lfs migrate"
        "A layout can be chosen only while a file is empty.";
    3028 FileBusy EBUSY "the file is busy" ""
        "The operation cannot be done while the file is in use this way.";
    3029 TextBusy ETXTBSY "the program is in use" "end the program (on any client), or replace it: write a new file and rename it over this one"
        "A program that runs on one client is not written on another, and what is open for writing on one is not started on another.";
    3030 SymlinkLoop ELOOP "too many symbolic links" ""
        "The name is a symbolic link where none is allowed.";
    3031 TooManyOpens ENFILE "too many open files" ""
        "The metadata server's table of open files is full.";
    3032 KvFailed EIO "the metadata store cannot be read or written" "look at the disk, then start the MDT again"
        "The disk returned an error for the file that holds the MDT's rows. What was acknowledged is in the log or in that file; nothing is returned in place of what could not be read.";
    3033 Inconsistent EIO "the metadata contradicts itself" "please report this with the output of fsck; restore the MDT from its backup if files are concerned"
        "fsck found rows of the metadata store that cannot both be true, such as an entry of a directory without an inode. The message names the invariant, the object and what is wrong with it.";
    3034 MdtFillsUp ENOSPC "the metadata target fills up" "remove files, or give the MDT a larger disk"
        "The MDT is fuller than 85 %. Nothing is refused yet: this is said long before it is.";
    3035 ChangelogGap ESTALE "records are missing from a changelog" "scan the file system again, then clear up to the GAP record"
        "A changelog may not fill the MDT: when it is too large, or its oldest records are a month old, those go although a reader has not cleared them. The reader is told so by a record of type GAP, whose index is that of the last record that went. What happened before it is not told any more; a scan of the file system (lfs find) shows how things are now. A reader that is not used any more should be deregistered (lctl changelog_deregister); one that cannot keep up should ask for fewer types (--mask).";

    3036 OverQuota EDQUOT "over the limit of a user, group or project" "remove files, or ask the administrator for more: lfs quota"
        "A user, a group or a project has as many inodes, or as many bytes, as the administrator allows, or has been over a soft limit for longer than the grace time. The message says whose limit it is. Look: lfs quota -u USER, -g GROUP, -p ID; the project of a directory: lfs project -d DIR. Limits without a name of their own are the default ones: lfs quota -U, -G, -P. More: lfs setquota. What was written before is safe, and removing always works.";
    3037 BackupBusy EBUSY "another backup of this MDT is being read" "wait until it is done; one that was cut off is forgotten after a minute"
        "A backup shows the metadata of one moment, and keeps what it shows from being overwritten. So only one is read at a time.";
    3038 BadBackup EINVAL "not a whole backup of an MDT" "take another file, or make a new backup: brindle mdt backup"
        "The file is not a backup that brindle mdt backup has written, or it is cut off or damaged. Every part of it has a checksum, and its end says how many rows there are. Nothing was changed.";
    3039 LaterMdt ESTALE "this MDT has been at work under a later term elsewhere" "serve that one; this copy of its disk is out of date"
        "Each start of an MDT has a term of its own, and the MGS keeps the highest. This MDT was restored from a backup, or served from another copy of its disk, after this copy was last in use. Two of them would give out the same numbers twice, so this one stops.";
    3040 CopiesDiffer EIO "copies of the MDT differ" "nothing is copied over; decide which copy is right, then have the other one filled anew: brindle target replica remove, brindle target replica add"
        "The scrub compared the rows of two members of an MDT's replica set at the same record of the log. All their checksums are right, and the rows differ. That is a defect of the software, or somebody has changed a store by hand: please report it. Programs are answered by the member that serves.";

    // 4xxx: OSS
    4001 OstFull ENOSPC "the storage target is full" "remove files: lfs df"
        "No OST that could hold this part of the file has free space left.";
    4002 ObjectMissing EIO "part of the file is missing" "run: brindle fsck"
        "An object that is known to exist was not found on its OST. It is reported, and never read as zeros.";
    4003 ObjectDamaged EIO "part of the file is damaged" "restore the file from a copy; run: brindle fsck"
        "A block read from disk does not match its checksum. It is not returned as data.";
    4004 OstIo EIO "the storage target's disk failed" "look at the OSS's log and the disk"
        "The OST's disk returned an error.";
    4005 StaleWrite EAGAIN "a late duplicate of a write" ""
        "The write carries an older sequence than its slot has served; it is dropped.";
    4006 Fenced EIO "this client was fenced" ""
        "The OST refuses this session epoch, because the metadata server ended the session.";
    4007 BadChecksum EIO "data was damaged on the network" ""
        "The checksum of data that arrived does not match. The sender sends it again.";
    4008 TermChanged EIO "the storage target lost unsynced writes" ""
        "The OST runs under a new boot term: what was written before and not synced may be lost.";
    4009 ObjectUnknown ENOENT "no such object" ""
        "The OST has no object of this name. For a stripe that was never written this is normal.";
    4010 ObjectUnowned EIO "an object of an unknown owner" "look at it before you remove it: it lies in the quarantine of its OST"
        "An object names a file or a generation that its metadata target never issued, or that was lost with an accepted loss of metadata. It is set aside and listed, never destroyed automatically.";
    4011 OstAboveMark ENOSPC "the storage target takes no new objects" "add an OST, or remove files: lfs df"
        "The OST is fuller than the high-water mark (97 % unless the MDT's option high-water says otherwise), so new files and new parts of files go to others. Files that lie on it grow on it while it has room.";
    4012 OstFillsUp ENOSPC "the storage target fills up" "add an OST, or remove files: lfs df"
        "The OST is fuller than 85 %. Nothing is refused yet: this is said long before it is. Above the high-water mark it takes no new objects.";
    4013 DamageMended EIO "damage was found and mended" "look at the disk: smartctl -a, dmesg; a second time within days: replace it"
        "The scrub, or a read, found blocks on the disk of one copy that did not match their checksums. Another copy had them whole, and they were written anew from it. No program got a wrong byte, and nothing is lost.";
    4014 DiskFailing EIO "a disk of a host is failing" "replace it before it is lost: smartctl -a /dev/DISK on its host, docs/operations/replace.md"
        "The disk says of itself that it fails (SMART), has sectors that it cannot read, or its file system has met errors. Data is served as long as the disk gives it; what the disk returns wrong is found by checksums and not given to programs.";
    4015 ArrayDegraded EIO "a disk array of a host has lost a disk" "replace the disk: mdadm --detail /dev/ARRAY on its host"
        "An md array works with fewer disks than it was made of. Data is served; another disk that fails may be one too many.";
    4016 DiskHangs EIO "the disk of the target does not answer" "look at the disk and its controller on that host: dmesg, smartctl -a; the copy comes back by itself when the disk answers"
        "A write to the disk of a copy has not come back within seconds, and no error came. The copy was put out of its replica set, and another copy serves; programs go on. When the disk answers again the copy is filled by itself. A second time: replace the disk.";

    // 5xxx: MGS and map
    5001 NoMgs ETIMEDOUT "no answer from the MGS" "check that the MGS runs: brindle status"
        "None of the MGS addresses answered.";
    5002 NoSuchFs ENOENT "no such file system" ""
        "The MGS does not know a file system of this name. The message lists those it knows.";
    5003 IndexInUse EEXIST "the index belongs to another target" ""
        "A target with this role and index is registered with another identity.";
    5004 UnknownTarget ENOENT "no such target" ""
        "The map has no target of this name.";
    5005 TargetDown EIO "the target does not answer" ""
        "The server of this target does not answer. Clients wait for it and go on when it is back.";
    5006 StoreDamaged EIO "the configuration store is damaged" "restore the MGT from its copy"
        "The file that holds the cluster's configuration has a wrong checksum.";
    5007 NoSuchPool ENOENT "no such pool" "list them: brindle pool list"
        "The file system has no pool of OSTs of this name. A layout that names a pool which was destroyed later is not refused: its new files lie anywhere, until a pool of that name is made again.";
    5008 PoolExists EEXIST "the pool exists already" ""
        "The file system has a pool of OSTs of this name.";
    5009 PoolNotEmpty ENOTEMPTY "the pool has OSTs" "remove them from it first: brindle pool remove"
        "A pool that has OSTs is destroyed only when that was meant: what is made under its name later lies on any OST.";
    5010 PoolEmpty ENOSPC "the pool has no OST" "give it one: brindle pool add"
        "The layout asks for OSTs of a pool that has none, so there is no place for the file. Nothing was written anywhere else.";
    5011 TargetInUse EBUSY "the target is in use" ""
        "The OST holds parts of files, or gets new ones; nothing was changed. It is taken out of the file system once it is drained and empty.";
    5012 TargetRemoved ENOENT "the target was removed" "format the directory again to use it: brindle target add"
        "The target was taken out of the file system with brindle target remove. Nothing of the file system lies on it any more.";
    5013 NoFence EBUSY "no host takes the target over: its owner cannot be fenced" "name a program that switches hosts off: fence = in /etc/brindle/serve.toml of the MGS host"
        "The owner of a shared target is silent. It may still be able to write to the device, and two hosts that write to one file system destroy it. So another host takes the target only when a program has switched the owner off, when the owner has given the target up itself, or when an administrator vouches that it is off.";
    5014 NoStandby EIO "no other host can take the target over" ""
        "The owner of a shared target does not serve it, and no other host that reaches its device is alive and can read it. Clients wait.";
    5015 FencingFailed EIO "the host could not be fenced" "make sure that the host is off, then: brindle target failover TARGET --owner-is-off"
        "The program that switches hosts off has failed, so the host may still write to devices that it shares. Its targets are not taken over. The program is run again from time to time.";
    5016 NotOwner EAGAIN "this host does not own the target now" ""
        "The target lies on a device that two hosts reach. Its owner rewrites a block on the device twice a second, and answers nothing when that has not worked for two seconds. Clients ask again.";
    5017 BadOwnerBlock EIO "the owner block of the device cannot be used" "compare the device with the one that the target was made on"
        "A device that two hosts reach has a block that says who owns it. It is missing, damaged, of another target or of a newer release. Nothing was mounted and nothing was changed.";
    5018 StoreUnreachable ETIMEDOUT "the configuration store does not answer" "check the members of etcd, their network and the certificate: etcdctl endpoint health"
        "No member of etcd answered in time, or those that did have lost the majority of their cluster. Files are read and written as before; until etcd answers again nothing changes in the membership of the cluster. The message says of each member what happened.";
    5019 NotLeading EAGAIN "this MGS is not the active one" "ask the active one"
        "Several hosts may run the MGS; one of them is active, as long as it holds a lease in the configuration store. The lease of this one has ended, or another holds it, so it changes nothing and answers nothing.";
    5020 StoreInUse EEXIST "the configuration store holds a file system of this name already" "give the new one another name: --fs NAME"
        "etcd has the configuration of a file system of this name, of another cluster or of an init that was interrupted. Nothing was changed. What is certain to be of no use any more is removed by hand: etcdctl del --prefix brindle/NAME/.";
    5030 LastReplicaLost EIO "no member that has everything can serve the target" "bring one of those members back; or, if their disks are lost for good: brindle target replica accept-loss TARGET --node HOST"
        "Every member that has all acknowledged changes is away. Others may lack some of them, so that none of these serves by itself: the target waits. Only an administrator can decide that the changes are lost.";
    5031 OlderReplica EIO "the disk is an older copy of this member" "mount the right disk; or have the member filled anew: brindle target replica remove, empty the directory, brindle target replica add"
        "A member of a replica set records the epoch of the set on its disk. The cluster knows that this member had recorded a later one than its disk has now: an old image, a snapshot or a backup was put in its place. Nothing was changed on it.";
    5032 OlderSet EIO "the cluster's configuration is older than the disk of this member" "restore the newest configuration of the MGS"
        "The member has recorded a later epoch of its replica set than the MGS knows. The configuration was restored from an older backup; going by it could bring back members that lack acknowledged changes.";
    5033 NotPrimary EAGAIN "this member does not serve the target now" ""
        "The target has several members on different hosts, and one of them serves it. This one was asked, or sent a change, and is not the one; whoever asked goes by the map and asks again.";
    5034 Degraded EIO "not all copies are complete" "brindle target replica list shows them"
        "A target has several members on different hosts, and at least one of them lacks changes: it is away, it has failed, or it is being filled. Programs go on and nothing is lost; but the loss of one more member could stop the target. A member that comes back is filled by itself.";
    5040 LogInRefused EACCES "cannot log in" "check the name and the password; an administrator can give you a new password"
        "The manager knows no user of this name with this password, or the address for the first log-in has been used or has run out. Which of the two is wrong is not told.";
    5041 NotLoggedIn EACCES "not logged in" "log in"
        "The request has no session, or its session has ended: after an hour without a request, after twelve hours, at a log-out, or when the user was removed.";
    5042 RoleForbids EPERM "the role of the user does not permit this" "ask an administrator"
        "A viewer looks, an operator starts, stops and moves targets, an administrator also manages users and reads the audit log. Nothing was changed.";
    5043 TooManyTries EAGAIN "too many tries to log in" "wait some minutes, then try again"
        "The manager answers only so many tries to log in from one address, and for one user, in five minutes. Sessions that exist are not concerned.";
    5044 ForgedRequest EACCES "the request does not come from the console" "reload the page and try again"
        "A request that changes something must carry the number that the session was given at log-in, and must come from a page of the manager itself. Another page that a browser has open cannot know it. Nothing was changed.";
    5045 UnknownUser ENOENT "no such user" "list the users"
        "The manager has no user of this name.";
    5046 UserExists EEXIST "there is a user of this name" "choose another name, or remove the user first"
        "Each user of the manager has a name of their own.";
    5047 ManagerBusy EBUSY "the manager does as much as it may at once" "wait until running work has ended, then try again"
        "Each target is worked on by one task at a time, and tasks, sessions and live views are bounded in number.";
    5048 UnknownResource ENOENT "the manager has nothing at this address" "the addresses are listed in docs/reference/openapi.json"
        "The address is not one of the manager's, or what it names does not exist.";
    5049 AuditFailed EIO "the audit log cannot be written" "make room where the manager keeps its state, then try again"
        "Every change is noted in the audit log before it is made. Where that is not possible, nothing is changed.";
    5050 HostSilent ETIMEDOUT "a host is silent" "look whether the host runs and is on the network: brindle node list"
        "No daemon of the host has been heard of. Clients wait for its targets; those on devices that two hosts reach are taken over where the host can be fenced.";
    5051 FailedOver EAGAIN "a target is served by its other host" "find out why its preferred host lost it, then: brindle target failback TARGET"
        "The target lies on a device that two hosts reach, and the one that is not preferred serves it. Nothing is wrong with the data; but until the preferred host serves it again there may be no other host left to take it over.";
    5052 FullSoon ENOSPC "the file system will be full soon" "add an OST, or find what grows: brindle file du -h --max-depth 1 MNT"
        "At the pace of the last hours the OSTs will be full within the time that the message names. Nothing is refused yet.";
    5053 InodesLow ENOSPC "few inodes are left" "remove files, or give the MDT a larger disk"
        "The MDTs have room for few more files and directories. Nothing is refused yet.";
    5054 CertificateExpiring EACCES "a certificate ends soon" "renew it before it ends; hosts of the cluster renew theirs themselves while they reach the MGS"
        "Behind its last day a certificate is refused: browsers do not open the console any more, or the host cannot prove to others who it is.";
    5055 ArchiveBehind EAGAIN "the archive is behind" "look at the agents and what they do: brindle hsm status; start more of them: brindle agent"
        "Actions of tiering have waited for long. What is not archived cannot be released, and a program that reads a released file waits for it to come back.";
    5056 ArchiveUnreachable ETIMEDOUT "nobody works for the archive" "start an agent where the archive is mounted: brindle agent; look at its log"
        "Actions of tiering wait, and no agent asks for work. Programs that read a released file wait until one does.";
    5057 ClientsEvicted EIO "clients were evicted" "look at the MDT's log for their names, then at their hosts and the network between"
        "An MDT has ended sessions of clients that were silent for longer than their lease. What such a client had not yet written is lost to it, and its programs were told so; other clients go on.";
    5058 ClockWrong EINVAL "the clock of a host is wrong" "have the host keep its time with NTP: chronyc tracking, timedatectl"
        "The clock of a host differs by seconds from the manager's. Times of files come from the MDT's clock, and certificates and log lines are hard to compare between hosts.";
    5059 NotificationFailed EIO "alerts cannot be sent" "try the address by hand: curl for a webhook, sendmail -t for mail"
        "The webhook or the program that sends mail has refused what the manager gave it, or did not answer. The alerts themselves are in the console and in 'brindle alerts'.";
    5060 DaemonSilent ETIMEDOUT "a daemon does not tell its numbers" "look whether it runs, and whether its metrics port can be reached"
        "The address at which a server or a mount tells its numbers does not answer. The file system may be well; nobody sees it there any more.";
    5061 UnknownAlert ENOENT "no such alert" "list them: brindle alerts list"
        "The manager has no alert of this number. Alerts that ended long ago are forgotten.";
    5062 TieringFails EIO "actions of tiering fail" "read why: brindle hsm list, and the agents' logs"
        "Agents report that copies to the archive or from it fail. Files that were not archived are not released; a released file whose restore fails cannot be read for now.";
    5063 HistoryFailed EIO "the history cannot be kept" "see whether the manager's directory can be written: df, mount, dmesg"
        "The manager keeps what the cluster did in files in its directory, which cannot be opened or written. The file system does not need them; charts may have gaps.";
    5064 RestoredTarget EAGAIN "how the target stands is not known yet" "start all hosts that have to do with it: brindle node list"
        "The configuration of the cluster was restored from a backup, which may be older than the last change of who serves the target. Until all its hosts have told what lies on their disks, nobody is given it anew: it could be a host that lacks acknowledged changes. Clients wait. If a host is lost for good, the message says how to go on without it.";
    5065 BadConfigBackup EINVAL "not a whole backup of a configuration" "take another file, or make a new backup: brindle cluster backup"
        "The file is no backup of a cluster's configuration, or it was cut off or changed: its checksum is wrong, or what it has cannot be read. Nothing was made from it.";
    5066 SuperblocksContradict EINVAL "the superblocks of the hosts contradict each other" ""
        "A configuration that is made anew from superblocks needs each target once, with one identity, of one file system, and each copy of it that was complete. The message names the directories that do not go together. Leave out those that are old (--leave-out HOST:DIR), and say which hosts are lost for good (--lost HOST).";
    5070 NumberNotMapped EPERM "the user or group has no number in the file system" ""
        "The nodemap of this host maps its user and group numbers to those of the file system, and this one has no mapping. So nothing can be given to it, and no ACL can name it. Give the file to a user or group that is mapped, or ask an administrator for a mapping: brindle nodemap set NAME --map-uid, --map-gid. An owner without a number at this host is shown as nobody (65534); his name cannot be given back.";
    5071 UserNotMapped EACCES "this host may not ask for this user" ""
        "The nodemap of this host has numbers for the users and groups that it may ask for, and refuses all others (--deny-unknown). An administrator can map the user and his group: brindle nodemap set NAME --map-uid, --map-gid.";
    5080 ReadOnlyHost EROFS "this host may not change the file system" ""
        "The nodemap of the host says that it only reads (brindle nodemap show). Every change from it is refused, whichever user asks. An administrator can change the nodemap: brindle nodemap set NAME --read-only no.";
    5081 NotForNodemap EPERM "the nodemap of this host does not allow it" ""
        "The operation is about the file system as a whole, about other hosts, or is an administrator's or a server's. A host that a nodemap limits may not ask for it. Ask from a host that is trusted fully.";
    5082 NodemapExists EEXIST "there is a nodemap of this name" "change it: brindle nodemap set"
        "A nodemap of this name exists. Nothing was changed.";
    5083 UnknownNodemap ENOENT "no such nodemap" "list them: brindle nodemap list"
        "The cluster has no nodemap of this name. Nothing was changed.";
    5084 BadNodemap EINVAL "a nodemap cannot be like that" ""
        "A host, a range of addresses, a user or another property of the nodemap is not possible, or another nodemap has it already: a host is in one nodemap at most. Nothing was changed.";
    5085 RailDown ETIMEDOUT "a rail does not answer:" "look at the cable, the port of the switch and the interface of the host in that network: ip -br addr, ip -s link"
        "The host has addresses in several networks, and its servers are not reached in one of them. Requests under way there were sent again over another rail, and no program has seen an error; but there is less bandwidth, and the loss of one more network could cut the host off. The rail is used again as soon as it is back.";
    5090 LimitExists EEXIST "there is a limit of this name" "give it other rates: brindle limit set; or remove it first: brindle limit remove"
        "A limit of this name exists. Nothing was changed.";
    5091 UnknownLimit ENOENT "no such limit" "list them: brindle limit list"
        "The file system has no limit of this name. Nothing was changed.";
    5092 BadLimit EINVAL "a limit cannot be like that" ""
        "A limit needs a name of at most 31 letters, digits, dots, dashes and underscores; at least one job, user or host that it is for; and a rate above 0: requests a second (--iops 500), bytes a second (--bytes-per-s 100M), or both. A rate of 0 is refused because whoever waits for the job, for a lock or a file that it has, would wait for ever. Nothing was changed.";

    // 6xxx: tiering
    6001 Released EAGAIN "the file is released: its bytes lie in an archive" ""
        "The bytes of this file were moved to an archive and must be brought back before it can be opened. A mount asks for that and waits; a program sees this only where it asked not to wait.";
    6002 NotRecalled ENODATA "the file is released, and was not brought back" "bring it back: lfs hsm_restore FILE"
        "The bytes of this file lie in an archive only, and something says that opening it must not fetch them: the mount's option no_recall, an open with O_NONBLOCK under nonblock-recall=refuse, or a copy that is marked as lost.";
    6003 HsmRefused EPERM "cannot do this with the file's copies" "look at its state: lfs hsm_state FILE"
        "An action of tiering would lose data, or is forbidden by a flag of the file: only what is archived and has not changed since is released, what is marked norelease never; the only copy of a released file is never removed. Nothing was changed.";
    6004 StaleAttempt EAGAIN "the attempt was given up" ""
        "The agent was silent for longer than its lease, or the action was cancelled, so the work was taken from it. What it has done does not count; what it left in the archive is removed later.";
    6005 ArchiveDamaged EIO "the copy in the archive is damaged" "restore that file of the archive from a backup, then open the file again; or mark it: lfs hsm_set --lost FILE"
        "The copy in the archive is missing, has another length or has other bytes than were archived: its checksum does not match. Nothing of it is returned as data. The file stays released, and its name and attributes are not affected.";
    6006 ArchiveFailed EIO "the archive cannot be used" "look whether the archive is mounted, writable and has room, then try again"
        "The agent could not read or write the archive. Files that lie in the file system are not affected; released ones stay released.";
    6007 HsmOff EBUSY "tiering is stopped" "lctl set_param mdt.*.hsm_control=enabled"
        "The administrator has stopped tiering (hsm_control), so that nothing is archived or brought back. Files that are not released are read and written as always.";
    6008 ChangedMeanwhile EBUSY "the file changed while it was archived" "archive it again when its writer has closed it"
        "Somebody wrote to the file, or opened it for writing, while it was copied. The copy was thrown away; the file is as its writer left it.";

    6010 BadPolicy EINVAL "cannot use the policy text" ""
        "The text of a policy has a block, a criterion, a value or an action that this release does not carry out, or that is misspelt. The message names file, line and column. Nothing of the text was carried out: an unknown criterion never counts as true.";
    6011 NotConfirmed EPERM "this policy deletes, and was not confirmed" "look at what it would do: brindle policy preview FILE MNT; then: brindle policy confirm FILE"
        "Policies that delete (cleanup, rmdir, hsm_remove, unlink, cmd) stay off until the same text, with its includes and variables, was previewed and confirmed. Whoever changes the text confirms it again. Policies that only archive and release run all the same.";
    6012 NotPreviewed EPERM "this text was not previewed" "brindle policy preview FILE MNT"
        "A text is confirmed only after a preview of exactly this text, with its includes and variables, has shown what it would delete.";
    6013 NoAccessTime ENOSYS "no access times are kept" "bring the servers to this release, or use last_mod, last_mdchange or creation"
        "The MDT is of an earlier release, in which reading a file does not change the access time. A policy that goes by last_access would release or delete files in daily use, so the criterion is refused.";
    6014 EntryChanged EAGAIN "it is not as the scan has found it" ""
        "Between the scan of a policy and the action, the entry was written, renamed, replaced or opened. It was left alone; the next run looks at it again.";
    6015 PolicyCommandFailed EIO "a command of a policy has failed" ""
        "A policy with cmd() started a program, and that ended with an error, was killed or took too long. The next run starts it again for the same file.";
    6016 NoAgent ENOTCONN "nobody serves this archive" "start an agent: brindle agent --archive N --backend posix:DIR MNT"
        "Files wait for an archive of a number that no agent serves now. Nothing is lost: archives wait, and whoever opens a released file waits with it, until an agent of that number works or the action is cancelled (lfs hsm_cancel).";
    6017 PolicyRuns EBUSY "another policy engine uses this directory" "stop it, or give another directory with --state"
        "Two engines in one directory would write over each other's history. The lock goes with its process, however that ends.";
    6018 PolicyStateDamaged EIO "cannot read the state of the policy engine" ""
        "A file in the policy engine's directory cannot be read or is not what the engine writes. Confirmations that cannot be read do not count.";
    6019 PolicyTextChanged EBUSY "the policy text was changed meanwhile" "load it again, and make the change in it"
        "Somebody has changed the text between the moment at which it was read, or previewed, and the moment at which it was to be saved or confirmed. Nothing was changed; what deletes stays off until exactly the text that is in force was previewed and confirmed.";
    6020 S3NoBucket ENOENT "there is no such bucket" "look at the bucket's name, --s3-endpoint and --s3-region; make the bucket with the tools of the S3 server"
        "The S3 server answers, and has no bucket of this name for this region. The agent makes no buckets. Nothing was changed.";
    6021 S3Refused EACCES "the S3 server refuses this user" "look at the keys in the file of --s3-credentials, at the user's rights on the bucket, and at this host's clock"
        "The S3 server does not know the access key, or the secret does not belong to it, or the user may not read, write, list and remove objects in the bucket. A clock that is wrong by more than 15 minutes is refused likewise. Files that lie in the file system are not affected; released ones stay released.";
    6022 S3Unreachable EIO "the S3 server cannot be reached" "look at --s3-endpoint, at the network between, and at the server; what waits goes on when it answers"
        "No connection to the S3 server, or no whole answer in time, several times in a row. Files that lie in the file system are not affected; released ones stay released until the server answers again.";
    6023 S3Full ENOSPC "the S3 server has no room" "make room there, or raise the bucket's quota; then archive again"
        "The S3 server took no more bytes: it is full, or the quota of the bucket is used up. Nothing is released that was not archived.";
    6024 S3Damaged EIO "bytes were damaged on the way to the S3 server" "look at the network, memory and proxies between the agent and the server, then archive again"
        "The server compares what it gets with the checksums that the agent sends, and they differ, or it has stored another length. The copy does not count, and the file is as it was.";
    6025 S3Credentials EACCES "cannot use this file of credentials" "write into it: aws_access_key_id = ..., aws_secret_access_key = ..., and make it yours alone: chmod 600 FILE"
        "The keys of an S3 server are read from a file alone, in the form of ~/.aws/credentials. It must be a regular file of the user who runs the agent, or of root, that nobody else may read or write, so that no other user of this host learns the keys. They never stand in arguments, in the map or in a log.";
    6030 NothingToImport ENOENT "there is nothing to import" ""
        "No archive of the kind that was named lies there, or it holds no copies of a file system. Nothing was changed, neither in the archive nor in the file system.";
    6031 ManifestDamaged EIO "the manifest of a copy cannot be used" "restore that object of the archive from a backup; the other files are not affected"
        "Beside each copy in an archive lies a manifest with the names, owner, mode, times and checksum of its file. This one is missing, is no manifest, or says what does not fit the copy. The file that it tells of was not imported; its bytes are untouched.";

    // 7xxx: burst buffers
    7001 BadDirective EINVAL "cannot use a burst buffer directive" "correct the line, then submit the job again"
        "A line #DW or #BB of a job script, or the option --bb, cannot be used as it is written. The message names line, column and the nearest form that can. The job was not submitted.";
    7002 NotOffered ENOSYS "not offered yet" ""
        "The job asks for something of burst buffers that this release does not have, such as swap. It is refused when the job is submitted, instead of being passed over.";
    7003 PoolFull ENOSPC "the pool of bricks has no room" "look at it: brindle bb pool; buffers that are kept: brindle bb list"
        "The free parts of the pool's bricks are together smaller than the buffer that is asked for. Nothing was allocated. Buffers whose files could not be staged out hold room until they are retried or destroyed.";
    7004 NoSuchBuffer ENOENT "no such buffer" "list them: brindle bb list"
        "No job or number of a buffer is called so. A buffer whose job has ended and whose files were staged out is gone.";
    7005 BufferBusy EBUSY "another step of this buffer is under way" "try again"
        "Each buffer takes one step at a time. The step before did not end within the time that this one waits for it.";
    7006 StageFailed EIO "cannot stage files" ""
        "Files could not be copied into or out of a buffer. The copy runs as the user of the job. A buffer whose files could not be staged out is kept: mend the cause, then run brindle bb stage --retry.";
    7007 WrongPhase EINVAL "the buffer is not in a state for this" "see it: brindle bb list"
        "A step was asked for that does not fit the state of the buffer, such as mounting one that is being destroyed. Nothing was changed.";
    7008 NoOrchestrator ENOTCONN "the orchestrator of burst buffers does not answer" "start it: brindle bb serve"
        "Commands and Slurm reach the orchestrator at its local socket (option --socket or BRINDLE_BB_SOCKET). It does not run, or this user may not use the socket.";
    7009 StageStopped EINTR "staging was stopped" ""
        "The job was cancelled while its files were copied. A buffer whose job ran is kept with its files: brindle bb stage --retry finishes the copy.";

    7010 NameTaken EEXIST "the name of a persistent buffer is taken" "choose another name, or use the buffer: #DW persistentdw name=NAME"
        "Persistent buffers have one name in the whole cluster, whoever owns them. One of this name is there with another owner, size, pool or group. Nothing was made or changed.";
    7011 BufferInUse EBUSY "the persistent buffer is in use" "wait until these jobs have ended, or stage their files out: brindle bb list"
        "Jobs that have been set up use the buffer, or one whose files could not be staged out is kept and may need it. It is destroyed when they have ended, and never under them. Nothing was changed.";
    7012 NotYourBuffer EACCES "the buffer belongs to another user" "ask its owner; a buffer for a group is made with #BB create_persistent ... group=GROUP"
        "A persistent buffer is used by its owner, and by the members of its group where it was made with one. Only its owner or an operator destroys it. Nothing was changed.";

    7013 BufferTooFull ENOSPC "more is in use than the new size" "remove or copy files out, or choose a larger size"
        "A buffer is made smaller only where each of its targets holds less than what is left of it. The message names the smallest size that is possible now. Nothing was changed.";
    7014 GrowLimit EDQUOT "the buffer may not grow so far" "ask for less; an operator may make it larger: brindle bb resize"
        "The line grow=auto:MAX of the job limits the size of its buffer, for the job itself, too. A buffer has a limited number of targets as well: one that has grown often is full of them. Nothing was changed.";

    7015 SwapNeedsMemory ENOMEM "a node has too little memory to take swap back" "nothing has to be done: it is tried again every few seconds; end what uses memory on the node"
        "Pages of processes still lie in the swap of a job that has ended, and the node has less memory available than they need. The swap stays on and the buffer is kept until there is enough.";
    7016 SwapLost EIO "the swap of a node has lost its storage" "start the storage again and wait; or give the swap up: brindle bb destroy --yes, processes with pages in it get SIGBUS"
        "Pages of processes lie in the swap of a job, and a server of its buffer cannot be started. The swap stays on and the buffer is kept. No page is ever read as anything but what was written: a process that needs one waits, or gets SIGBUS.";
    7017 SwapFailed EIO "swap cannot be turned on or off" "read the reason; turning it off is tried again every few seconds"
        "A loop device or the swap on it could not be set up on a node, or the kernel has not given it back in time. A buffer with swap that is still on is kept.";
    7018 NodeAway ENOTCONN "a compute node does not answer" "start its agent: systemctl start brindle-bb-agent; or, if the node is dead: brindle bb node forget --yes NODE"
        "The agent of a compute node is not connected, or has not done in time what it was told. A buffer that is to be unmounted there keeps the node, and nothing is staged out or destroyed under it. It goes on by itself when the agent answers, or when an administrator says that the node is dead: then the servers of the buffer refuse that host, so it writes nothing any more.";
    7019 StaleOrder ESTALE "an order for a compute node is out of date" ""
        "Each order carries the revision of the buffer's row. The agent of the node has carried out one with a higher revision for the same buffer, so this one was delayed, or comes from an orchestrator that was replaced. Nothing was changed.";
    7020 NoSuchNode ENOENT "no such compute node" "list them: brindle bb node list; start its agent: brindle bb agent"
        "No agent of a compute node of this name has registered with the orchestrator. A node is called as the identity of its host says, and Slurm has to call it the same.";

    // 8xxx: network and protocol
    8001 BadMagic EPROTO "not a Brindle peer" ""
        "The first bytes of a message are not Brindle's; the connection was closed.";
    8002 BadFrame EPROTO "damaged message" ""
        "A header or body has a wrong checksum, an impossible length or fields that do not decode; the connection was closed.";
    8003 VersionMismatch EPROTO "incompatible versions" "upgrade the older of the two"
        "The two sides have no protocol version in common. The message names both.";
    8004 WrongFs EPROTO "the peer belongs to another file system" "check the address you gave"
        "The peer's file system id differs. Refused, so that a test client never talks to production.";
    8005 Disconnected EIO "the connection was lost" ""
        "The connection to a server was lost. The request is sent again under the same slot and sequence.";
    8006 UnknownOp ENOSYS "unknown operation" "upgrade the older of the two"
        "The peer does not know this operation number.";
    8007 WrongTarget EIO "the server does not serve this target" ""
        "The request names a target that this server does not serve (any more). The client fetches the new map.";
    8008 Overloaded EAGAIN "too many requests in flight" ""
        "The peer sent more requests than its credits allow.";
    8009 NotForCaller EPERM "the caller may not ask for this" ""
        "Each operation may be asked for by some kinds of callers only: mounts, servers, administrators. A session may be used by the host alone that opened it. The request was refused before anything was looked at, and nothing was changed.";
    8010 NotEnrolled EACCES "the host has not joined the cluster" "let it join: brindle cluster token on an administrator's host, brindle join on this one; or name its identity: BRINDLE_IDENTITY=FILE"
        "Every host of a cluster has a key and a certificate of the cluster's authority, which it shows on each connection. A host without one, and a user who may not read it, are refused. Nothing is told to them.";
    8011 ForeignCertificate EACCES "the certificate is of another cluster" "compare the address and the identity that were given"
        "The other side shows a certificate that another authority signed. Either the address is wrong, or the host has joined another cluster.";
    8012 CertificateExpired EACCES "the certificate is out of date" "compare the clocks of both hosts; if the host was off for long: brindle join --again, with a new token; a development cluster gets new certificates at each start: brindle dev up"
        "A certificate holds for 90 days. By the clock of one side it has ended, or has not begun yet.";
    8013 HostNameInUse EEXIST "another host has joined under this name" "join under another name: --name; if it is the same host, installed anew, with a token made for it: brindle cluster token --host NAME"
        "A host is known by its name and its key. A second host of the same name is refused, because a session belongs to the host that opened it. A host that was installed anew has a new key: a token that was made for its name (--host) lets it take the name over, with its targets, and the old key is let in no more.";
    8014 BadToken EACCES "the token cannot be used" "ask for a new one: brindle cluster token"
        "A token is the right of one host to join, once, until it expires.";
    8015 BadIdentity EINVAL "cannot use the identity file" "name another file: option identity, or BRINDLE_IDENTITY=FILE"
        "The file holds the host's key, its certificate and that of the cluster's authority. It cannot be read, or its parts do not belong together.";
    8016 Insecure EACCES "the connection is not protected enough" ""
        "The two sides have no mode of protection in common: auth, integrity, privacy. The message says what each of them asks for.";
    8017 HostRemoved EACCES "the host was removed from the cluster" "to take it in again: remove its identity (/etc/brindle/identity.pem), then brindle join with a new token: brindle cluster token"
        "An administrator has removed the host. Its certificate is not accepted any more, and its connections have ended. What it had written and not yet synced is lost, as with a power cut.";
    8018 NoAuthority ENOSYS "the cluster has no authority" "make a cluster of hosts: brindle cluster init"
        "Only a cluster that was made by brindle cluster init can let hosts join, give out tokens and tell hosts what to serve. Targets that were made by brindle format are served by brindle serve --dir.";
    8019 UnknownHost ENOENT "no such host has joined" "list the hosts: brindle node list"
        "No host of this name has joined the cluster.";
    8020 HostRenamed EACCES "the host goes by another name now" "start its daemon: it takes the new certificate by itself"
        "An administrator has given the host another name: brindle node rename. Its daemon gets a certificate for that name and starts anew; from then on certificates for the former name are refused everywhere.";

    // 9xxx: bugs
    9001 Bug EIO "internal error" "please report this with the log"
        "An internal check failed. That is a defect of Brindle; data that was synced is safe.";
    9002 UnknownCode EIO "a fault of a newer version" "upgrade this side"
        "The peer sent a fault code that this version does not know.";
}
