//! Which instructions compute parity: found once at run time, or forced by the caller.
//!
//! Invariant: no kernel runs on a machine that lacks its instructions; [`Kernel::assert_available`] stands before each
//! use.

use std::sync::OnceLock;

/// One implementation of the arithmetic, fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// 64-byte registers, any multiplication by a constant in one instruction. Intel since Ice Lake, AMD since Zen 4.
    Avx512Gfni,
    /// 32-byte registers.
    Avx2,
    /// `u64` arithmetic without `unsafe`; correct everywhere.
    Portable,
}

impl Kernel {
    /// The fastest kernel of this machine.
    #[must_use]
    pub fn detect() -> Kernel {
        Kernel::available()[0]
    }

    /// The name that `status` shows.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Avx512Gfni => "avx512-gfni",
            Kernel::Avx2 => "avx2",
            Kernel::Portable => "portable",
        }
    }

    /// The kernels that run on this machine, fastest first.
    #[must_use]
    pub fn available() -> Vec<Kernel> {
        [Kernel::Avx512Gfni, Kernel::Avx2, Kernel::Portable].into_iter().filter(|k| k.is_available()).collect()
    }

    pub(crate) fn assert_available(self) {
        assert!(self.is_available(), "kernel {} was forced on a machine that lacks its instructions", self.name());
    }

    #[cfg(target_arch = "x86_64")]
    fn is_available(self) -> bool {
        match self {
            Kernel::Avx512Gfni => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
            Kernel::Avx2 => is_x86_feature_detected!("avx2"),
            Kernel::Portable => true,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_available(self) -> bool {
        self == Kernel::Portable
    }
}

/// The kernel of this process: detected once.
#[must_use]
pub fn kernel() -> Kernel {
    static DETECTED: OnceLock<Kernel> = OnceLock::new();
    *DETECTED.get_or_init(Kernel::detect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_is_always_there_and_last() {
        assert_eq!(Kernel::available().last(), Some(&Kernel::Portable));
        assert_eq!(kernel(), Kernel::available()[0]);
    }
}
