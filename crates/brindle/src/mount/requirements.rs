//! What a mount needs of this machine.

use brindle_types::{Code, Fault, Result};

/// Oldest kernel: its FUSE has direct I/O with shared mmap.
const KERNEL_MIN: (u32, u32) = (6, 6);

/// Checks the kernel and its FUSE device.
pub fn check() -> Result<()> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    kernel_fits(&release)?;
    if !std::path::Path::new("/dev/fuse").exists() {
        return Err(Fault::new(Code::NoFuseDevice).what("cannot mount: there is no").subject("/dev/fuse"));
    }
    Ok(())
}

fn kernel_fits(release: &str) -> Result<()> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= KERNEL_MIN {
        return Ok(());
    }
    Err(Fault::new(Code::KernelTooOld)
        .what("cannot mount: the kernel is too old:")
        .subject(format!("Linux {release}"))
        .why(format!("Linux {}.{} or newer is needed", KERNEL_MIN.0, KERNEL_MIN.1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compared_by_number() {
        for good in ["6.6.0", "6.18.44-fc-v657", "7.0-rc1", "6.10"] {
            kernel_fits(good).unwrap();
        }
        for old in ["6.5.99", "5.15.0-1", "6.1.0-28-amd64", "garbage"] {
            assert_eq!(kernel_fits(old).unwrap_err().code, Code::KernelTooOld, "{old}");
        }
    }
}
