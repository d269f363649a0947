//! Self-made certificates, and how they change without a moment in which a caller trusts the wrong one.
//!
//! The API servers trust a *bundle* (`caBundle`), replicas serve a *leaf*; both learn of a change some time after it was
//! written. So an authority is replaced in three steps, with an overlap between them that is longer than it takes to hear:
//!
//! 1. the new authority joins the bundle; the leaf stays signed by the old one;
//! 2. a leaf signed by the new authority takes the place of the old leaf;
//! 3. the old authority leaves the bundle.
//!
//! Pure: no IO and no clock; the time comes in as Unix seconds. Certificates are a matter of the wall clock.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

/// Clocks of other machines may be late: certificates count from so long before they were made.
const BACKDATED_S: i64 = 3_600;

/// When what is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a leaf counts, in seconds. Renewed when a third is left.
    pub leaf_s: i64,
    /// How long an authority counts, in seconds. Replaced when a third is left.
    pub authority_s: i64,
    /// Between two steps of a replacement, in seconds.
    pub overlap_s: i64,
}

/// An authority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Authority {
    certificate: String,
    key: String,
    made_s: i64,
    ends_s: i64,
}

/// What the replicas serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Leaf {
    certificate: String,
    key: String,
    names: Vec<String>,
    /// When its authority was made: its name among the authorities.
    authority_made_s: i64,
    made_s: i64,
    ends_s: i64,
}

/// Everything that all replicas share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// The oldest first.
    authorities: Vec<Authority>,
    leaf: Option<Leaf>,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first authority and the first leaf, or new ones after everything ended.
    Begun,
    /// A new authority is trusted too.
    AuthorityAdded,
    /// A new leaf.
    LeafRenewed,
    /// An old authority is no longer trusted.
    AuthorityDropped,
}

impl Step {
    /// What was made, as the label `what` of the metric.
    pub(super) const fn made(self) -> &'static [&'static str] {
        match self {
            Self::Begun => &["authority", "leaf"],
            Self::AuthorityAdded => &["authority"],
            Self::LeafRenewed => &["leaf"],
            Self::AuthorityDropped => &[],
        }
    }
}

/// A certificate cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("making a certificate failed: {0}")]
pub struct MakeError(#[from] rcgen::Error);

impl Chain {
    /// Certificates that callers trust, as PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }

    /// Certificate and key to serve with, as PEM.
    #[must_use]
    pub fn leaf(&self) -> Option<(&str, &str)> {
        self.leaf.as_ref().map(|leaf| (leaf.certificate.as_str(), leaf.key.as_str()))
    }

    /// When the leaf ends, in Unix seconds.
    #[must_use]
    pub fn leaf_ends_s(&self) -> Option<i64> {
        self.leaf.as_ref().map(|leaf| leaf.ends_s)
    }

    /// Takes the next step, if one is due. Call it until there is none.
    ///
    /// # Errors
    /// A certificate cannot be made.
    pub fn step(&mut self, now_s: i64, names: &[String], times: Times) -> Result<Option<Step>, MakeError> {
        let Some(newest) = self.authorities.last().filter(|newest| newest.ends_s > now_s) else {
            return self.begin(now_s, names, times).map(Some);
        };
        let newest_s = newest.made_s;
        let Some(leaf) = self.leaf.clone().filter(|leaf| leaf.ends_s > now_s) else {
            return self.begin(now_s, names, times).map(Some);
        };
        if newest.ends_s - now_s < times.authority_s / 3 {
            let authority = Authority::make(now_s, times)?;
            self.authorities.push(authority);
            return Ok(Some(Step::AuthorityAdded));
        }
        let is_settled = |since_s: i64| now_s - since_s >= times.overlap_s;
        let is_new = leaf.authority_made_s == newest_s;
        if !is_new && is_settled(newest_s) {
            return self.renew(now_s, newest_s, names, times).map(Some);
        }
        // Near the end of its authority a leaf cannot be made to last longer; the authority's own replacement is on its way.
        let is_short =
            leaf.ends_s - now_s < times.leaf_s / 3 && leaf.ends_s < self.ends_of(leaf.authority_made_s);
        if is_short || leaf.names != names {
            return self.renew(now_s, leaf.authority_made_s, names, times).map(Some);
        }
        if is_new && self.authorities.len() > 1 && is_settled(leaf.made_s) {
            self.authorities.retain(|authority| authority.made_s == newest_s);
            return Ok(Some(Step::AuthorityDropped));
        }
        Ok(None)
    }

    fn ends_of(&self, made_s: i64) -> i64 {
        self.authorities
            .iter()
            .find(|authority| authority.made_s == made_s)
            .map_or(0, |authority| authority.ends_s)
    }

    fn begin(&mut self, now_s: i64, names: &[String], times: Times) -> Result<Step, MakeError> {
        // Whoever still trusts an old authority loses nothing by it.
        self.authorities.retain(|authority| authority.ends_s > now_s && authority.made_s < now_s);
        self.authorities.push(Authority::make(now_s, times)?);
        self.renew(now_s, now_s, names, times)?;
        Ok(Step::Begun)
    }

    fn renew(
        &mut self,
        now_s: i64,
        authority_s: i64,
        names: &[String],
        times: Times,
    ) -> Result<Step, MakeError> {
        let authority = self.authorities.iter().find(|authority| authority.made_s == authority_s);
        // Its authority is gone from the Secret: the newest one signs.
        if let Some(authority) = authority.or(self.authorities.last()) {
            self.leaf = Some(authority.sign(now_s, names, times)?);
        }
        Ok(Step::LeafRenewed)
    }
}

fn params(names: &[String], begins_s: i64, ends_s: i64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    let date = |unix_s: i64| {
        time::OffsetDateTime::from_unix_timestamp(unix_s).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
    };
    params.not_before = date(begins_s);
    params.not_after = date(ends_s);
    Ok(params)
}

impl Authority {
    fn params(made_s: i64, ends_s: i64) -> Result<CertificateParams, rcgen::Error> {
        let mut params = params(&[], made_s - BACKDATED_S, ends_s)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        // Two authorities in one bundle are told apart by their names.
        params.distinguished_name.push(DnType::CommonName, format!("ackbeat webhook authority {made_s}"));
        Ok(params)
    }

    fn make(now_s: i64, times: Times) -> Result<Self, MakeError> {
        let key = KeyPair::generate()?;
        let ends_s = now_s + times.authority_s;
        let certificate = Self::params(now_s, ends_s)?.self_signed(&key)?;
        Ok(Self { certificate: certificate.pem(), key: key.serialize_pem(), made_s: now_s, ends_s })
    }

    fn sign(&self, now_s: i64, names: &[String], times: Times) -> Result<Leaf, MakeError> {
        let issuer = Issuer::new(Self::params(self.made_s, self.ends_s)?, KeyPair::from_pem(&self.key)?);
        let ends_s = (now_s + times.leaf_s).min(self.ends_s);
        let mut params = params(names, now_s - BACKDATED_S, ends_s)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, "ackbeat webhook");
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &issuer)?;
        Ok(Leaf {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            names: names.to_vec(),
            authority_made_s: self.made_s,
            made_s: now_s,
            ends_s,
        })
    }
}
