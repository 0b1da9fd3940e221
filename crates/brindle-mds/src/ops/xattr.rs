//! Extended attributes: user, trusted, security, and POSIX ACLs, which change mode bits in the same batch.

use brindle_types::{ChangeKind, Code, Fault, FileType, Ino, Result};
use brindle_wire::Cred;
use brindle_wire::mds::Empty;
use brindle_wire::mds::xattr::{
    GetxattrReq, GetxattrResp, ListxattrReq, ListxattrResp, RemovexattrReq, SetxattrReq,
    XATTR_VALUE_MAX_BYTES,
};

use crate::acl::{self, Acl};
use crate::admission;
use crate::changelog;
use crate::mdt::{Call, Mdt, Step, Txn};
use crate::store::{Inode, inode, xattr};

/// Longest name in bytes.
pub const XATTR_NAME_MAX_BYTES: usize = 255;
/// Most bytes of all names of an inode, each with a zero byte: what listxattr(2) can return.
pub const XATTR_LIST_MAX_BYTES: usize = 64 << 10;
/// Most bytes of all values of an inode.
pub const XATTR_TOTAL_MAX_BYTES: usize = 512 << 10;
/// Prefixes of names that are stored as they are.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
const RWX_ALL: u16 = 0o777;
const S_ISGID: u16 = 0o2000;

/// Value of one attribute.
pub async fn handle_get(mdt: &Mdt, _call: &Call, req: GetxattrReq) -> Result<GetxattrResp> {
    mdt.read(|t| {
        inode::get(t, req.ino)?;
        check_name(&req.name)?;
        let value = xattr::find(t, req.ino, &req.name)?.ok_or_else(|| Fault::new(Code::NoXattr))?;
        Ok(GetxattrResp { value: value.to_vec() })
    })
    .await
}

/// All names.
pub async fn handle_list(mdt: &Mdt, call: &Call, req: ListxattrReq) -> Result<ListxattrResp> {
    mdt.read(|t| {
        inode::get(t, req.ino)?;
        let names = xattr::list(t, req.ino)?.into_iter().map(|(name, _)| name);
        Ok(ListxattrResp { names: names.filter(|name| admission::may_list_xattr(call, name)).collect() })
    })
    .await
}

/// Sets a value.
pub async fn handle_set(mdt: &Mdt, call: &Call, req: SetxattrReq) -> Result<Empty> {
    check_name(&req.name)?;
    if req.value.len() > XATTR_VALUE_MAX_BYTES {
        return Err(Fault::new(Code::XattrTooLarge).why(format!("the value has {} bytes", req.value.len())));
    }
    mdt.modify(call, |t| {
        let mut inode = inode::get(t, req.ino)?;
        let exists = xattr::find(t, req.ino, &req.name)?.is_some();
        match (exists, req.create, req.replace) {
            (true, true, _) => return Err(Fault::new(Code::Exists).into()),
            (false, _, true) => return Err(Fault::new(Code::NoXattr).into()),
            _ => {}
        }
        match acl::is_acl(&req.name) {
            true => set_acl(t, &mut inode, &req)?,
            false => {
                check_kind(&inode, &req.name)?;
                check_room(t, &inode, &req)?;
                xattr::put(t, req.ino, &req.name, &req.value);
            }
        }
        note(t, req.ino, &req.name, &req.cred);
        finish(t, &mut inode)
    })
    .await
}

/// Removes a value.
pub async fn handle_remove(mdt: &Mdt, call: &Call, req: RemovexattrReq) -> Result<Empty> {
    check_name(&req.name)?;
    mdt.modify(call, |t| {
        let mut inode = inode::get(t, req.ino)?;
        if xattr::find(t, req.ino, &req.name)?.is_none() {
            return Err(Fault::new(Code::NoXattr).into());
        }
        t.frees_space();
        xattr::delete(t, req.ino, &req.name);
        note(t, req.ino, &req.name, &req.cred);
        finish(t, &mut inode)
    })
    .await
}

fn note(t: &mut Txn<'_>, ino: Ino, name: &[u8], cred: &Cred) {
    changelog::note(t, ChangeKind::Xattr, |change| {
        (change.target, change.xattr) = (Some(ino), name.to_vec());
        change.user = Some((cred.uid, cred.gid));
    });
}

/// Flags that say whether there is anything, and ctime.
fn finish(t: &mut Txn<'_>, inode: &mut Inode) -> Step<Empty> {
    let names = xattr::list(t, inode.ino)?;
    inode.has_acl = names.iter().any(|(name, _)| acl::is_acl(name));
    inode.has_xattr = names.iter().any(|(name, _)| !acl::is_acl(name));
    inode.ctime = t.now;
    inode::put(t, inode)?;
    Ok(Empty {})
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > XATTR_NAME_MAX_BYTES {
        return Err(Fault::new(Code::XattrRange).why(format!("the name has {} bytes", name.len())));
    }
    if PREFIXES.contains(&name) {
        return Err(Fault::new(Code::InvalidArgument).why("the name ends with its prefix"));
    }
    let known = PREFIXES.iter().any(|p| name.starts_with(p) && name.len() > p.len());
    if known || acl::is_acl(name) {
        return Ok(());
    }
    Err(Fault::new(Code::NotSupported)
        .what("no such kind of attribute:")
        .subject(name.escape_ascii().to_string()))
}

/// user.* exists on regular files and directories only.
fn check_kind(inode: &Inode, name: &[u8]) -> Result<()> {
    let plain = matches!(inode.kind, FileType::Regular | FileType::Directory);
    if name.starts_with(b"user.") && !plain {
        return Err(Fault::new(Code::NotPermitted).why("user attributes are for files and directories"));
    }
    Ok(())
}

fn check_room(t: &Txn<'_>, inode: &Inode, req: &SetxattrReq) -> Result<()> {
    let others = xattr::list(t, inode.ino)?.into_iter().filter(|(name, _)| *name != req.name);
    let (names, values) = others.fold((0, 0), |(n, v), (name, len)| (n + name.len() + 1, v + len));
    let names = names + req.name.len() + 1;
    let values = values + req.value.len();
    if names <= XATTR_LIST_MAX_BYTES && values <= XATTR_TOTAL_MAX_BYTES {
        return Ok(());
    }
    Err(Fault::new(Code::MdtFull)
        .what("no room for another extended attribute on")
        .subject(inode.ino.fid().to_string())
        .why(format!("its names would have {names} bytes ({XATTR_LIST_MAX_BYTES} are possible)"))
        .why(format!("its values would have {values} bytes ({XATTR_TOTAL_MAX_BYTES} are possible)"))
        .next("remove attributes of this file that nobody needs"))
}

/// Sets or removes an ACL. An ACL that is equivalent to mode bits becomes mode bits.
fn set_acl(t: &mut Txn<'_>, inode: &mut Inode, req: &SetxattrReq) -> Result<()> {
    if inode.kind == FileType::Symlink {
        return Err(Fault::new(Code::NotSupported).why("symbolic links have no ACL"));
    }
    let acl = Acl::decode(&req.value)?;
    let is_default = req.name == acl::DEFAULT;
    if is_default && !inode.is_dir() {
        return match acl {
            None => Ok(()),
            Some(_) => Err(Fault::new(Code::PermissionDenied).why("only directories have a default ACL")),
        };
    }
    match &acl {
        Some(acl) if !is_default => {
            inode.perm = inode.perm & !RWX_ALL | acl.mode_bits();
            if req.kill_sgid {
                inode.perm &= !S_ISGID;
            }
        }
        _ => {}
    }
    match acl.filter(|acl| is_default || !acl.is_minimal()) {
        Some(acl) => xattr::put(t, inode.ino, &req.name, &acl.encode()),
        None => xattr::delete(t, inode.ino, &req.name),
    }
    Ok(())
}
