//! What two copies of a machine must not share: the time, chance, and what they are told apart by.

use belljar_seal::{At, Failure, Outcome};

use super::sys;

/// Files that are shown in the place, over those of the same meaning.
pub(super) const MACHINE_ID: &str = "/run/machine-id";
pub(super) const BOOT_ID: &str = "/run/boot-id";

/// As many bytes as the kernel's generator has.
const ENTROPY_MIN: usize = 32;

pub(super) fn refresh(clock_ns: u64, entropy: &[u8], identity: [u8; 16]) -> Outcome<()> {
    if entropy.len() < ENTROPY_MIN {
        return Err(Failure { step: "taking entropy".to_owned(), errno: libc::EINVAL });
    }
    sys::set_clock(clock_ns).at("setting the clock")?;
    sys::add_entropy(entropy).at("adding entropy")?;
    write_identity(identity)
}

pub(super) fn write_identity(identity: [u8; 16]) -> Outcome<()> {
    let digits: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    std::fs::write(MACHINE_ID, format!("{digits}\n")).at("writing the machine's name")?;
    // Another number than the one before, and with the bits that say how such a number was made.
    let mut boot = identity.map(|byte| byte.rotate_left(3) ^ 0x5a);
    boot[6] = boot[6] & 0x0f | 0x40;
    boot[8] = boot[8] & 0x3f | 0x80;
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&boot[..4], &boot[4..6], &boot[6..8], &boot[8..10], &boot[10..]].map(hex);
    std::fs::write(BOOT_ID, format!("{}\n", parts.join("-"))).at("writing the boot's name")
}
