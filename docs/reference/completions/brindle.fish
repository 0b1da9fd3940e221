# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_brindle_global_optspecs
    string join \n h/help V/version
end

function __fish_brindle_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_brindle_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_brindle_using_subcommand
    set -l cmd (__fish_brindle_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c brindle -n "__fish_brindle_needs_command" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_needs_command" -s V -l version -d 'Print version'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "dev" -d 'Start, look at and end a whole cluster on this machine'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "mount" -d 'Mount a file system'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "umount" -d 'Unmount a file system'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "status" -d 'Say whether everything is well, what is not, and what to do'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "target" -d 'Targets of a file system'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "fs" -d 'File systems'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "pool" -d 'Pools of OSTs'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "stripe" -d 'Layouts of files and directories'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "file" -d 'Files by path, by FID and by what they are like'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "sync" -d 'Make everything in a mount durable, as sync(2) would'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "waits" -d 'Show what waits for whom'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "lfs" -d 'Lustre\'s user commands, in Lustre\'s words'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "lctl" -d 'Lustre\'s administration commands, in Lustre\'s words'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "format" -d 'Make a target in a directory'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "serve" -d 'Serve the targets in directories until SIGTERM'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "fsck" -d 'Check the targets of a file system, changing nothing'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "config" -d 'Show or check the configuration of `brindle serve`'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "explain" -d 'Say what a code means, what to do about it, and what programs see'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "bench" -d 'Measure a directory'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "completion" -d 'Print the completions of a shell'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "gen-docs" -d 'Write man pages, completions and reference pages'
complete -c brindle -n "__fish_brindle_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "up" -d 'Start a cluster, or start it again with its data, and mount it'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "status" -d 'Show its processes'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "kill" -d 'Kill one of its processes (SIGKILL), as a crash would'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "start" -d 'Start one of its processes again'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "add-ost" -d 'Add an OST while the cluster runs; new files lie on it at once'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "down" -d 'Unmount, and end every process; the data stays'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and not __fish_seen_subcommand_from up status kill start add-ost down help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l osts -d 'Number of OSTs; 4 at the first start' -r
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l mount -d 'Mount point; given twice, there are two clients. DIR/mnt at the first start' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l fsname -d 'Name of the file system; \'dev\' at the first start' -r
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l ost-size -d 'Put each OST on a loop image of this size, such as 512MiB' -r
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l mdt-size -d 'Put the MDT on a loop image of this size' -r
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l image-fs -d 'File system of the loop images' -r -f -a "ext4\t'ext4'
xfs\t'XFS (images of 300 MiB or more)'"
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -l no-mount -d 'Do not mount'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from up" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from status" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from status" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from kill" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from kill" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from start" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from add-ost" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from add-ost" -l ost-size -d 'Put it on a loop image of this size; like the last OST unless told otherwise' -r
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from add-ost" -l image-fs -d 'File system of the loop image' -r -f -a "ext4\t'ext4'
xfs\t'XFS (images of 300 MiB or more)'"
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from add-ost" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from down" -l dir -d 'Directory of the cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from down" -l purge -d 'Remove the directory with all data too'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from down" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "up" -d 'Start a cluster, or start it again with its data, and mount it'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "status" -d 'Show its processes'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "kill" -d 'Kill one of its processes (SIGKILL), as a crash would'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "start" -d 'Start one of its processes again'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "add-ost" -d 'Add an OST while the cluster runs; new files lie on it at once'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "down" -d 'Unmount, and end every process; the data stays'
complete -c brindle -n "__fish_brindle_using_subcommand dev; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand mount" -s o -d 'Options, separated by commas: ro, nodev, nosuid, noexec, log=FILE, metrics=ADDRESS:PORT' -r
complete -c brindle -n "__fish_brindle_using_subcommand mount" -l log -d 'Write the log to the end of this file; without it /var/log/brindle/mount.log, or standard error in the foreground' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand mount" -l metrics -d 'Where to serve metrics over HTTP; port 0 for any free one, \'none\' for not at all' -r
complete -c brindle -n "__fish_brindle_using_subcommand mount" -l workers -d 'Threads' -r
complete -c brindle -n "__fish_brindle_using_subcommand mount" -l dry-run -d 'Check the options, the mount point and this machine, and mount nothing'
complete -c brindle -n "__fish_brindle_using_subcommand mount" -s f -l foreground -d 'Stay in the foreground'
complete -c brindle -n "__fish_brindle_using_subcommand mount" -l ready-json -d 'Print one line of JSON on standard output when usable'
complete -c brindle -n "__fish_brindle_using_subcommand mount" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand umount" -l force -d 'Take it away from programs that use it'
complete -c brindle -n "__fish_brindle_using_subcommand umount" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand status" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand status" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand status" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand status" -s x -l problems -d 'Show only what is not healthy'
complete -c brindle -n "__fish_brindle_using_subcommand status" -l exit-code -d 'Exit with 8 when something is not healthy'
complete -c brindle -n "__fish_brindle_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -f -a "list" -d 'List the targets of a file system'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -f -a "add" -d 'Add an OST while the file system runs: format a directory if need be, and serve it'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -f -a "drain" -d 'Move everything off an OST, and give it no new files'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -f -a "undrain" -d 'Give an OST that was drained new files again'
complete -c brindle -n "__fish_brindle_using_subcommand target; and not __fish_seen_subcommand_from list add drain undrain help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from list" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from list" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from list" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l mgsnode -d 'Address of the MGS of the file system, such as 10.0.0.1:9880@tcp; may be given several times' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l index -d 'Index of the OST; the lowest free one without it' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l dir -d 'Directory of a formatted target; may be given several times' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l listen -d 'Address to listen at; this release has no authentication, so keep it to trusted networks' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l port -d 'Port of the first target; each further one takes the next. 0 for any free ones' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l advertise -d 'Host name or address that others reach this server at, where it is not the one it listens at' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l host -d 'Name of this host in messages; the system\'s by default' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l metrics -d 'Where to serve metrics over HTTP; port 0 for any free one, \'none\' for not at all' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l log -d 'Write the log to the end of this file instead of standard error' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l high-water -d 'An MDT puts nothing new on OSTs that are fuller than this, in percent, while others can take it' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l workers -d 'Threads' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -l ready-json -d 'Print one line of JSON on standard output when ready'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from drain" -l bandwidth -d 'Most bytes a second, such as 100MiB' -r
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from drain" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from undrain" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "list" -d 'List the targets of a file system'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "add" -d 'Add an OST while the file system runs: format a directory if need be, and serve it'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "drain" -d 'Move everything off an OST, and give it no new files'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "undrain" -d 'Give an OST that was drained new files again'
complete -c brindle -n "__fish_brindle_using_subcommand target; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and not __fish_seen_subcommand_from df help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and not __fish_seen_subcommand_from df help" -f -a "df" -d 'Show the space of a file system, target by target'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and not __fish_seen_subcommand_from df help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from df" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from df" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from df" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from df" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "df" -d 'Show the space of a file system, target by target'
complete -c brindle -n "__fish_brindle_using_subcommand fs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "create" -d 'Make a pool, and give it OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "remove" -d 'Take OSTs out of a pool; the files on them stay'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "destroy" -d 'Destroy a pool; the files in it stay'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "list" -d 'List pools and their OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and not __fish_seen_subcommand_from create add remove destroy list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from create" -l path -d 'A path in a mount of the file system; not needed where only one is mounted' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from create" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from create" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from create" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from create" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from add" -l path -d 'A path in a mount of the file system; not needed where only one is mounted' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from add" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from add" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from add" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from add" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from remove" -l path -d 'A path in a mount of the file system; not needed where only one is mounted' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from remove" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from remove" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from remove" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from remove" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -l path -d 'A path in a mount of the file system; not needed where only one is mounted' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -l yes -d 'Yes, even if it has OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from destroy" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from list" -l path -d 'A path in a mount of the file system; not needed where only one is mounted' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from list" -l mgs -d 'Address of its MGS' -r
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from list" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from list" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "create" -d 'Make a pool, and give it OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "remove" -d 'Take OSTs out of a pool; the files on them stay'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "destroy" -d 'Destroy a pool; the files in it stay'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "list" -d 'List pools and their OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand pool; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and not __fish_seen_subcommand_from get set migrate help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and not __fish_seen_subcommand_from get set migrate help" -f -a "get" -d 'Show how files lie, and what directories give to new files'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and not __fish_seen_subcommand_from get set migrate help" -f -a "set" -d 'Choose the layout of a new or empty file, or what a directory gives to new files'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and not __fish_seen_subcommand_from get set migrate help" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and not __fish_seen_subcommand_from get set migrate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from get" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s c -l stripe-count -l count -d 'Number of stripes; -1 for all OSTs, 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s S -l stripe-size -l size -d 'Stripe size: a multiple of 64KiB; 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s i -l stripe-index -l index -l start-ost -d 'Index of the first OST; -1 for any' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s o -l ost-list -l ost -d 'These OSTs, a stripe on each: 1,2-4,7' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s p -l pool -d 'OSTs of this pool only; \'none\': of the whole file system; \'inherit\': of the pool that is inherited' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s E -l component-end -d 'End of a component: the options behind it are its own; -1 for the end of the file' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s L -l layout -d 'raid0, or mdt for a first component (small files always begin in the MDT)' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s d -l delete -d 'Delete the directory\'s default'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s c -l stripe-count -l count -d 'Number of stripes; -1 for all OSTs, 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s S -l stripe-size -l size -d 'Stripe size: a multiple of 64KiB; 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s i -l stripe-index -l index -l start-ost -d 'Index of the first OST; -1 for any' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s o -l ost-list -l ost -d 'These OSTs, a stripe on each: 1,2-4,7' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s p -l pool -d 'OSTs of this pool only; \'none\': of the whole file system; \'inherit\': of the pool that is inherited' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s E -l component-end -d 'End of a component: the options behind it are its own; -1 for the end of the file' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s L -l layout -d 'raid0, or mdt for a first component (small files always begin in the MDT)' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -l off -d 'OSTs that the files are to leave' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -l bandwidth -d 'Most bytes a second, such as 100MiB' -r
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from help" -f -a "get" -d 'Show how files lie, and what directories give to new files'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from help" -f -a "set" -d 'Choose the layout of a new or empty file, or what a directory gives to new files'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from help" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand stripe; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -f -a "fid" -d 'Print the FID of a file'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -f -a "path" -d 'Print the paths of a FID'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -f -a "du" -d 'Add up the space of trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand file; and not __fish_seen_subcommand_from fid path find du help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from fid" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from fid" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from path" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from path" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from find" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from find" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -s d -l max-depth -d 'Directories down to this level; 0: as -s' -r
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -s B -l block-size -d 'Unit of the numbers, such as 1 or 1M' -r
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -s s -l summarize -d 'Only the sum of each PATH'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -s h -l human-readable -d 'Sizes with a unit, powers of 1024'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -l apparent-size -d 'Sizes of the contents instead of allocated space'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from du" -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from help" -f -a "fid" -d 'Print the FID of a file'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from help" -f -a "path" -d 'Print the paths of a FID'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from help" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from help" -f -a "du" -d 'Add up the space of trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand file; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand sync" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand waits" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand waits" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "setstripe" -d 'Choose the layout of a new or empty file, or the default of a directory'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "getstripe" -d 'Show how files lie'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "df" -d 'Show the space of each target'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "path2fid" -d 'Print the FID of files'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "fid2path" -d 'Print the paths of FIDs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "osts" -d 'List the OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "mdts" -d 'List the MDTs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "check" -d 'Say which servers answer'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and not __fish_seen_subcommand_from setstripe migrate getstripe find df path2fid fid2path pool_list osts mdts check help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s c -l stripe-count -l count -d 'Number of stripes; -1 for all OSTs, 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s S -l stripe-size -l size -d 'Stripe size: a multiple of 64KiB; 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s i -l stripe-index -l index -l start-ost -d 'Index of the first OST; -1 for any' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s o -l ost-list -l ost -d 'These OSTs, a stripe on each: 1,2-4,7' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s p -l pool -d 'OSTs of this pool only; \'none\': of the whole file system; \'inherit\': of the pool that is inherited' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s E -l component-end -d 'End of a component: the options behind it are its own; -1 for the end of the file' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s L -l layout -d 'raid0, or mdt for a first component (small files always begin in the MDT)' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s d -l delete -d 'Delete the default of a directory'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from setstripe" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s c -l stripe-count -l count -d 'Number of stripes; -1 for all OSTs, 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s S -l stripe-size -l size -d 'Stripe size: a multiple of 64KiB; 0 for the default' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s i -l stripe-index -l index -l start-ost -d 'Index of the first OST; -1 for any' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s o -l ost-list -l ost -d 'These OSTs, a stripe on each: 1,2-4,7' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s p -l pool -d 'OSTs of this pool only; \'none\': of the whole file system; \'inherit\': of the pool that is inherited' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s E -l component-end -d 'End of a component: the options behind it are its own; -1 for the end of the file' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s L -l layout -d 'raid0, or mdt for a first component (small files always begin in the MDT)' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s W -l bandwidth -d 'Most megabytes a second' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s b -l block -d 'Wait for programs that have the file open (they never have to: accepted for scripts)'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s n -l non-block -d 'Do not make programs wait (accepted for scripts; a piece at a time makes them wait, for a moment)'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s v -l verbose -d 'Say what is moved'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -l stats -d 'Show progress'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from migrate" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s c -l stripe-count -l count -d 'Print the stripe count'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s S -l stripe-size -l size -d 'Print the stripe size in bytes'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s i -l stripe-index -l index -d 'Print the index of the first OST'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s p -l pool -d 'Print the pool'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s L -l layout -d 'Print the layout pattern'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s g -l generation -d 'Print the layout generation'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s d -l directory -d 'Of a directory print its default only, not its files'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s r -l recursive -d 'Go down into directories'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s q -l quiet -d 'Leave the objects out'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from getstripe" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from find" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from df" -s p -l pool -d 'Only the OSTs of a pool: POOL or FS.POOL' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from df" -s h -l human-readable -d 'Sizes with a unit, powers of 1024'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from df" -s i -l inodes -d 'Inodes instead of bytes'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from df" -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from path2fid" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from fid2path" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from pool_list" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from pool_list" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from pool_list" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from osts" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from mdts" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "setstripe" -d 'Choose the layout of a new or empty file, or the default of a directory'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "getstripe" -d 'Show how files lie'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "df" -d 'Show the space of each target'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "path2fid" -d 'Print the FID of files'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "fid2path" -d 'Print the paths of FIDs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "osts" -d 'List the OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "mdts" -d 'List the MDTs'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "check" -d 'Say which servers answer'
complete -c brindle -n "__fish_brindle_using_subcommand lfs; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "pool_new" -d 'Make a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "pool_add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "pool_remove" -d 'Take OSTs out of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "pool_destroy" -d 'Destroy a pool that has no OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and not __fish_seen_subcommand_from pool_new pool_add pool_remove pool_destroy pool_list help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_new" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_new" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_new" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_add" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_add" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_add" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_remove" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_remove" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_remove" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_destroy" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_destroy" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_destroy" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_list" -l mgs -d 'Address of the MGS; not needed where the file system is mounted' -r
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_list" -l dir -d 'Directory of a development cluster' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from pool_list" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "pool_new" -d 'Make a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "pool_add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "pool_remove" -d 'Take OSTs out of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "pool_destroy" -d 'Destroy a pool that has no OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand lctl; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l fsname -d 'Name of the file system: 1 to 8 letters, digits, \'-\' or \'_\'' -r
complete -c brindle -n "__fish_brindle_using_subcommand format" -l index -d 'Index of the target within its role; an OST needs one' -r
complete -c brindle -n "__fish_brindle_using_subcommand format" -l mgsnode -d 'Address of the MGS, such as 10.0.0.1:9880@tcp; may be given several times' -r
complete -c brindle -n "__fish_brindle_using_subcommand format" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand format" -l mgs -d 'Make the management target (MGT)'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l mdt -d 'Make a metadata target (MDT)'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l ost -d 'Make an object storage target (OST)'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l reformat -d 'Destroy what the directory holds; needs --yes'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l yes -d 'Yes, destroy it'
complete -c brindle -n "__fish_brindle_using_subcommand format" -l dry-run -d 'Say what would be done, and change nothing'
complete -c brindle -n "__fish_brindle_using_subcommand format" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l config -d 'Read options from this file' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l dir -d 'Directory of a formatted target; may be given several times' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l listen -d 'Address to listen at; this release has no authentication, so keep it to trusted networks' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l port -d 'Port of the first target; each further one takes the next. 0 for any free ones' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l advertise -d 'Host name or address that others reach this server at, where it is not the one it listens at' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l host -d 'Name of this host in messages; the system\'s by default' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l metrics -d 'Where to serve metrics over HTTP; port 0 for any free one, \'none\' for not at all' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l log -d 'Write the log to the end of this file instead of standard error' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l high-water -d 'An MDT puts nothing new on OSTs that are fuller than this, in percent, while others can take it' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l workers -d 'Threads' -r
complete -c brindle -n "__fish_brindle_using_subcommand serve" -l ready-json -d 'Print one line of JSON on standard output when ready'
complete -c brindle -n "__fish_brindle_using_subcommand serve" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand fsck" -l dir -d 'A development cluster: all of its targets' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand fsck" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand fsck" -l quick -d 'Do not read the contents of objects'
complete -c brindle -n "__fish_brindle_using_subcommand fsck" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand config; and not __fish_seen_subcommand_from default check help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand config; and not __fish_seen_subcommand_from default check help" -f -a "default" -d 'Print a file with every key, its meaning and its default'
complete -c brindle -n "__fish_brindle_using_subcommand config; and not __fish_seen_subcommand_from default check help" -f -a "check" -d 'Check a file without starting anything'
complete -c brindle -n "__fish_brindle_using_subcommand config; and not __fish_seen_subcommand_from default check help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand config; and __fish_seen_subcommand_from default" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand config; and __fish_seen_subcommand_from check" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "default" -d 'Print a file with every key, its meaning and its default'
complete -c brindle -n "__fish_brindle_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "check" -d 'Check a file without starting anything'
complete -c brindle -n "__fish_brindle_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand explain" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "quick" -d 'Four figures in about a minute: streams and files, beside disk and loopback'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "ior" -d 'Large files as IOR: file per process, shared file, 1 MiB and 47008-byte transfers'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "mdtest" -d 'Many files as mdtest: own directories with empty files, one directory with 3901-byte files'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "random" -d '4 KiB in random order with O_DIRECT'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "threads" -d 'Throughput against the number of threads, as iozone'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "tree" -d 'A real source tree: untar, find, du, tar, rm'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "search" -d '`lfs find` and `brindle file du` beside find and du on the same mount, in one run'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "storage" -d 'The object store of an OST alone, as obdfilter-survey'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "net" -d 'The network alone, as LNet selftest'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "compare" -d 'Two runs beside each other'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "rank" -d 'A process of a running benchmark'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and not __fish_seen_subcommand_from quick ior mdtest random threads tree search storage net compare rank help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l ranks -d 'Processes at once [default: number of processors]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l size -d 'Bytes that each process writes and reads' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l files -d 'Files that each process makes' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from quick" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l ranks -d 'Processes at once [default: number of processors]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l case -d 'Cases to run, in this order' -r -f -a "easy\t'File per process, as ior -F'
segmented\t'One file, each process one piece of it'
strided\t'One file, processes take turns every transfer'
hard\t'One file, processes take turns every 47008 bytes'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l size -d 'Bytes that each process writes and reads' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l transfer-size -d 'Bytes of a call, in all cases but hard' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l read-own -d 'Each process reads what it wrote itself (ior without -C)'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -l direct -d 'With O_DIRECT, in all cases but hard'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from ior" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l ranks -d 'Processes at once [default: number of processors]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l case -d 'Cases to run' -r -f -a "easy\t'Own directories, empty files'
hard\t'One directory, 3901-byte files'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l files -d 'Files that each process makes' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from mdtest" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l ranks -d 'Processes at once [default: number of processors]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l size -d 'Bytes of all files together [default: 4GiB, or a fifth of the free space if that is less]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l seconds -d 'Length of each phase' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -l buffered -d 'Through the page cache instead of O_DIRECT'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from random" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l max -d 'Most threads; measured are 1, 2, 4 ... and this' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l size -d 'Bytes of all files together' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l record-size -d 'Bytes of a call' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from threads" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l dir -d 'The same directory through one more mount; all are used at once' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l limit-dir -d 'Local directory to compare with [default: the directory for temporary files, if DIR is not local itself]' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l cpu-of -d 'Count the processor time of processes whose command lines contain this [default: servers and mounts of Brindle, if DIR is in one]' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l ranks -d 'Trees at once, each unpacked by a process of its own' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l source -d 'Directory whose files make up the tree' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l entries -d 'Files and directories of the tree at least' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l no-limit -d 'Compare with no local directory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l no-fsync -d 'No fsync at the end of write phases: figures may be those of memory'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from tree" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from search" -l files -d 'Files in the tree' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from search" -l repetitions -d 'Repetitions of each command; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from search" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from search" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l cold-command -d 'Run by the shell when caches are to be cold, after those of the kernel were dropped: a remount, say' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l seed -d 'Seed of the contents of files and of the order of random pieces' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l objects -d 'Numbers of objects' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l threads -d 'Numbers of threads, with each number of objects as far as it is not smaller' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l size -d 'Bytes of all objects together' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l record-size -d 'Bytes of a call' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l keep-caches -d 'Leave caches as they are before phases that read'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -l no-verify -d 'Do not compare what is read with what was written'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from storage" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l serve -d 'Only answer, at this address, until Ctrl-C' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l to -d 'Measure against the server at this address' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l in-flight -d 'Requests in flight at once, one number after the other' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l bulk-size -d 'Bytes of a bulk' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l links -d 'Connections' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l seconds -d 'Length of each phase' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l repeat -d 'Repetitions of each phase; the median is shown' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l label -d 'Name of this run in reports: a commit, a peer' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l json -d 'Write the whole run to this file too, as JSON' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -l html -d 'Write a page with plots to this file too' -r -F
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from net" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from compare" -l fail-below -d 'End with exit code 8 when a figure of SECOND is slower than this part of that of FIRST' -r
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from compare" -s o -l output -d 'How to print the result' -r -f -a "table\t'For people'
json\t'One JSON document'"
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from rank" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "quick" -d 'Four figures in about a minute: streams and files, beside disk and loopback'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "ior" -d 'Large files as IOR: file per process, shared file, 1 MiB and 47008-byte transfers'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "mdtest" -d 'Many files as mdtest: own directories with empty files, one directory with 3901-byte files'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "random" -d '4 KiB in random order with O_DIRECT'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "threads" -d 'Throughput against the number of threads, as iozone'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "tree" -d 'A real source tree: untar, find, du, tar, rm'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "search" -d '`lfs find` and `brindle file du` beside find and du on the same mount, in one run'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "storage" -d 'The object store of an OST alone, as obdfilter-survey'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "net" -d 'The network alone, as LNet selftest'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "compare" -d 'Two runs beside each other'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "rank" -d 'A process of a running benchmark'
complete -c brindle -n "__fish_brindle_using_subcommand bench; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c brindle -n "__fish_brindle_using_subcommand gen-docs" -s h -l help -d 'Print help'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "dev" -d 'Start, look at and end a whole cluster on this machine'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "mount" -d 'Mount a file system'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "umount" -d 'Unmount a file system'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "status" -d 'Say whether everything is well, what is not, and what to do'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "target" -d 'Targets of a file system'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "fs" -d 'File systems'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "pool" -d 'Pools of OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "stripe" -d 'Layouts of files and directories'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "file" -d 'Files by path, by FID and by what they are like'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "sync" -d 'Make everything in a mount durable, as sync(2) would'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "waits" -d 'Show what waits for whom'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "lfs" -d 'Lustre\'s user commands, in Lustre\'s words'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "lctl" -d 'Lustre\'s administration commands, in Lustre\'s words'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "format" -d 'Make a target in a directory'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "serve" -d 'Serve the targets in directories until SIGTERM'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "fsck" -d 'Check the targets of a file system, changing nothing'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "config" -d 'Show or check the configuration of `brindle serve`'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "explain" -d 'Say what a code means, what to do about it, and what programs see'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "bench" -d 'Measure a directory'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "completion" -d 'Print the completions of a shell'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "gen-docs" -d 'Write man pages, completions and reference pages'
complete -c brindle -n "__fish_brindle_using_subcommand help; and not __fish_seen_subcommand_from dev mount umount status target fs pool stripe file sync waits lfs lctl format serve fsck config explain bench completion gen-docs help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "up" -d 'Start a cluster, or start it again with its data, and mount it'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "status" -d 'Show its processes'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "kill" -d 'Kill one of its processes (SIGKILL), as a crash would'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "start" -d 'Start one of its processes again'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "add-ost" -d 'Add an OST while the cluster runs; new files lie on it at once'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from dev" -f -a "down" -d 'Unmount, and end every process; the data stays'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "list" -d 'List the targets of a file system'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "add" -d 'Add an OST while the file system runs: format a directory if need be, and serve it'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "drain" -d 'Move everything off an OST, and give it no new files'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from target" -f -a "undrain" -d 'Give an OST that was drained new files again'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from fs" -f -a "df" -d 'Show the space of a file system, target by target'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "create" -d 'Make a pool, and give it OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "remove" -d 'Take OSTs out of a pool; the files on them stay'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "destroy" -d 'Destroy a pool; the files in it stay'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from pool" -f -a "list" -d 'List pools and their OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from stripe" -f -a "get" -d 'Show how files lie, and what directories give to new files'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from stripe" -f -a "set" -d 'Choose the layout of a new or empty file, or what a directory gives to new files'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from stripe" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from file" -f -a "fid" -d 'Print the FID of a file'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from file" -f -a "path" -d 'Print the paths of a FID'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from file" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from file" -f -a "du" -d 'Add up the space of trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "setstripe" -d 'Choose the layout of a new or empty file, or the default of a directory'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "migrate" -d 'Move files to other OSTs, or give them another layout'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "getstripe" -d 'Show how files lie'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "find" -d 'Search trees in the MDT, without walking them'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "df" -d 'Show the space of each target'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "path2fid" -d 'Print the FID of files'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "fid2path" -d 'Print the paths of FIDs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "osts" -d 'List the OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "mdts" -d 'List the MDTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lfs" -f -a "check" -d 'Say which servers answer'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lctl" -f -a "pool_new" -d 'Make a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lctl" -f -a "pool_add" -d 'Put OSTs into a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lctl" -f -a "pool_remove" -d 'Take OSTs out of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lctl" -f -a "pool_destroy" -d 'Destroy a pool that has no OSTs'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from lctl" -f -a "pool_list" -d 'List the pools of a file system, or the OSTs of a pool'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "default" -d 'Print a file with every key, its meaning and its default'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "check" -d 'Check a file without starting anything'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "quick" -d 'Four figures in about a minute: streams and files, beside disk and loopback'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "ior" -d 'Large files as IOR: file per process, shared file, 1 MiB and 47008-byte transfers'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "mdtest" -d 'Many files as mdtest: own directories with empty files, one directory with 3901-byte files'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "random" -d '4 KiB in random order with O_DIRECT'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "threads" -d 'Throughput against the number of threads, as iozone'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "tree" -d 'A real source tree: untar, find, du, tar, rm'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "search" -d '`lfs find` and `brindle file du` beside find and du on the same mount, in one run'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "storage" -d 'The object store of an OST alone, as obdfilter-survey'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "net" -d 'The network alone, as LNet selftest'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "compare" -d 'Two runs beside each other'
complete -c brindle -n "__fish_brindle_using_subcommand help; and __fish_seen_subcommand_from bench" -f -a "rank" -d 'A process of a running benchmark'
