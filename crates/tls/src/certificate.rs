//! A certificate with its private key, and the fingerprint by which people compare certificates.

use std::fmt::{self, Write};
use std::str::FromStr;

use aws_lc_rs::digest::{SHA256, digest};
use pem::Pem;
use s2n_tls::cert_chain::{Builder, CertificateChain};
use zeroize::Zeroizing;

use crate::Error;

/// A certificate and those above it, with the private key; PEM.
pub struct Identity {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Zeroizing<Vec<u8>>,
    fingerprint: Fingerprint,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not its key.
        f.debug_struct("Identity").field("fingerprint", &self.fingerprint).finish_non_exhaustive()
    }
}

impl Identity {
    /// These two, which must belong together.
    ///
    /// # Errors
    /// When they do not, or are none.
    pub fn new(chain: Vec<u8>, key: Zeroizing<Vec<u8>>) -> Result<Identity, Error> {
        let fingerprint = Certificate::first_of(&chain)?.fingerprint;
        let mut both = Builder::new()?;
        both.load_pem(&chain, &key)?;
        both.build()?;
        Ok(Identity { chain, key, fingerprint })
    }

    /// A new key, with a certificate that it has signed itself, for these names and addresses.
    ///
    /// # Errors
    /// When a name cannot be in a certificate.
    pub fn made_for(names: &[String]) -> Result<Identity, Error> {
        let mut about = rcgen::CertificateParams::new(names)?;
        about.distinguished_name = rcgen::DistinguishedName::new();
        about.distinguished_name.push(rcgen::DnType::CommonName, "Ashlar");
        let pair = rcgen::KeyPair::generate()?;
        let chain = about.self_signed(&pair)?.pem().into_bytes();
        Identity::new(chain, Zeroizing::new(pair.serialize_pem().into_bytes()))
    }

    /// The certificate and those above it.
    #[must_use]
    pub fn chain(&self) -> &[u8] {
        &self.chain
    }

    /// The private key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Of the certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// One certificate, alone.
pub struct Certificate {
    pem: Vec<u8>,
    fingerprint: Fingerprint,
}

impl Certificate {
    /// The first of a PEM text: whoever believes it does not believe the others of that text.
    ///
    /// # Errors
    /// When there is none.
    pub fn first_of(pem: &[u8]) -> Result<Certificate, Error> {
        let mut chain = Builder::new()?;
        chain.load_public_pem(pem).map_err(|_| Error::NoCertificate)?;
        let chain: CertificateChain<'_> = chain.build()?;
        let first = chain.iter().next().ok_or(Error::NoCertificate)??;
        let der = first.der()?;
        let hash = digest(&SHA256, der);
        let fingerprint = Fingerprint(hash.as_ref().try_into().map_err(|_| Error::NoCertificate)?);
        Ok(Certificate { pem: pem::encode(&Pem::new("CERTIFICATE", der)).into_bytes(), fingerprint })
    }

    /// It.
    #[must_use]
    pub fn pem(&self) -> &[u8] {
        &self.pem
    }

    /// Its fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// As openssl writes it: upper case, with colons.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, byte) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_char(':')?;
            }
            write!(f, "{byte:02X}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Fingerprint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Fingerprint, Error> {
        let no = || Error::NoFingerprint(text.to_owned());
        let digits: Vec<u8> = text.bytes().filter(|c| !matches!(c, b':' | b' ')).collect();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(no());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| no())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| no())?;
        }
        Ok(Fingerprint(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_written_and_read() {
        let made = Identity::made_for(&["localhost".into(), "127.0.0.1".into()]).unwrap();
        let text = made.fingerprint().to_string();
        assert_eq!((text.len(), text.matches(':').count()), (95, 31));
        for written in [text.clone(), text.to_lowercase(), text.replace(':', "")] {
            assert_eq!(written.parse::<Fingerprint>().unwrap(), made.fingerprint());
        }
        for wrong in ["", "ab", &text[1..], &text.replace(':', "x")] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
        }
        assert!(Certificate::first_of(b"no certificate").is_err());
    }

    #[test]
    fn the_first_certificate_is_taken_alone() {
        let (one, other) = (Identity::made_for(&["a".into()]).unwrap(), Identity::made_for(&["b".into()]).unwrap());
        let first = Certificate::first_of(&[one.chain(), other.chain()].concat()).unwrap();
        assert_eq!(first.fingerprint(), one.fingerprint());
        assert_eq!(String::from_utf8_lossy(first.pem()).matches("BEGIN CERTIFICATE").count(), 1);
        let again = Certificate::first_of(first.pem()).unwrap();
        assert_eq!(again.fingerprint(), one.fingerprint());
    }

    #[test]
    fn a_key_belongs_to_its_certificate_and_does_not_print() {
        let (one, other) = (Identity::made_for(&["a".into()]).unwrap(), Identity::made_for(&["a".into()]).unwrap());
        assert!(Identity::new(one.chain().to_vec(), Zeroizing::new(other.key().to_vec())).is_err());
        assert!(String::from_utf8_lossy(one.key()).contains("PRIVATE KEY"));
        assert!(!format!("{one:?}").contains("PRIVATE"));
    }
}
