//! Options of a column family, and their form in the manifest.

use super::ablation::Ablation;
use super::expert::ExpertFamilyOptions;
use super::options::Options;
use super::range::check;
use base::codec::{Reader, put_bytes, put_varint};
use base::{Compression, Error, ErrorKind, Result, limits};
use lsm::MergeChoice;
use lsm::operator::named;
use lsm::policy::{FileChoice, PolicyChoice, TreeOptions};
use table::KeyPrefix;

/// Fits one column family to its data: compression, separation of large values, filters. Pass it to
/// the creation of the family, or as [`Options::family`] for `default`.
///
/// The store keeps them when the family is created. A change applies to new files: old data stays
/// readable, and takes the new form when background work rewrites it.
/// [`FamilyOptions::expert`](method@FamilyOptions::expert) has the second page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyOptions {
    /// Compression of new files: saves space and costs processor time. Default:
    /// [`Compression::None`].
    pub compression: Compression,
    /// Minimum length of separated values, bytes: 32 to 16 MiB (16,777,216). Such values are in
    /// files of their own, so that compaction does not rewrite them; a scan reads them with extra
    /// device reads. 0: every value stays with its key, which suits scans of small values. Default:
    /// 512.
    pub min_blob_size: usize,
    /// Filter bits per key, at most 64, so that a read of an absent key rarely reads a table. 0: no
    /// filter, for families that are only scanned. Default: 10 (about 1 % false positives).
    pub filter_bits_per_key: u32,
    /// Kind of key prefix that the filters hold besides the keys: a number of first bytes, or all up
    /// to a delimiter. A scan within one prefix passes over tables without such a key. It applies to
    /// new files, and costs filter bits for each distinct prefix in a table. It needs
    /// [`FamilyOptions::filter_bits_per_key`] above 0. Earlier releases refuse a store with such a
    /// family. Default: `None`.
    pub prefix: Option<KeyPrefix>,
    /// Policy that picks compactions. Default: `leveled`, version 1. A store opens whatever the
    /// policies of its families. A family with a policy unknown to this release is readable, but
    /// neither written ([`ErrorKind::Unsupported`]) nor compacted. That ends when a release that
    /// knows the policy opens the store, or [`crate::Db::set_family_options`] sets another one.
    pub policy: PolicyChoice,
    /// Merge operator, for values that change by small deltas: a ready-made one as
    /// [`MergeChoice::counter`], or one of [`crate::ExpertOptions::merge_operators`]. A family takes
    /// merge operands only with it. Once chosen it stays, because stored operands need it: `None`
    /// keeps it, and another one takes its place. Earlier releases refuse a store with such a family.
    /// Default: `None`.
    pub merge_operator: Option<MergeChoice>,
    /// The second page: shape of the tree, file sizes, level 0, collection.
    pub expert: ExpertFamilyOptions,
}

impl Default for FamilyOptions {
    fn default() -> Self {
        FamilyOptions {
            compression: Compression::None,
            min_blob_size: 512,
            filter_bits_per_key: 10,
            prefix: None,
            policy: PolicyChoice::default(),
            merge_operator: None,
            expert: ExpertFamilyOptions::default(),
        }
    }
}

/// First byte of encoded family options. Version 1 lacks separated values. Version 3 adds a byte
/// for the value placement of an earlier release; this release reads that version but does not
/// write it. Version 4 is written for policies other than `leveled` 1, version 5 with a merge
/// operator, version 6 with a kind of key prefix.
const FAMILY_OPTIONS_VERSION: u8 = 6;

/// Value placement of version 3: values go to the log, and by the flush to a vSST.
const PLACED_IN_TABLES: u8 = 0;
/// Value placement of version 3: values in files beside the log. Such a family uses the default.
const PLACED_IN_LOG: u8 = 1;

/// Maximum length of a policy's name, bytes.
const POLICY_NAME_LEN_MAX: usize = 255;
/// Maximum length of a policy's parameters, bytes.
const POLICY_PARAMETERS_LEN_MAX: usize = 4 << 10;

impl FamilyOptions {
    /// Returns the same options with all derived values filled in, to compare them with the options
    /// of a family, which are stored so. It replaces zeros that mean "derived", checks nothing, and
    /// touches no store.
    pub fn derived(mut self) -> FamilyOptions {
        self.expert = self.expert.derived();
        self
    }

    /// Returns the same options with the merge operator of `stored` if they name none, since stored
    /// operands need it.
    pub(crate) fn keeping_operator(mut self, stored: &FamilyOptions) -> FamilyOptions {
        self.merge_operator = self.merge_operator.or_else(|| stored.merge_operator.clone());
        self
    }

    /// Changes expert options in an expression, for the few families that need them; all other
    /// options stay. The change is checked when the options are used, not here.
    ///
    /// ```
    /// # use lavastore_lavakv::FamilyOptions;
    /// let small_files = FamilyOptions::default().expert(|expert| expert.file_bytes = 1 << 20);
    /// assert_eq!(small_files.expert.file_bytes, 1 << 20);
    /// ```
    #[must_use]
    pub fn expert(mut self, change: impl FnOnce(&mut ExpertFamilyOptions)) -> FamilyOptions {
        change(&mut self.expert);
        self
    }

    /// Checks every option, derived ones with their derived values, to refuse a configuration
    /// before it is used. An open and a creation do the same. The call touches no store. The first
    /// option out of range is the error; the parameters of a compaction policy are checked only by
    /// the store.
    ///
    /// # Errors
    /// * `InvalidArgument`: an option is out of range; the message names it and its range.
    /// * `Unsupported`: the compression is not part of this build. Choose another one.
    pub fn validate(&self) -> Result<()> {
        self.clone().derived().check_ranges()
    }

    pub(super) fn check_ranges(&self) -> Result<()> {
        check("filter_bits_per_key", self.filter_bits_per_key, 0, 64)?;
        if self.min_blob_size != 0 {
            check("min_blob_size", self.min_blob_size, 32, limits::VALUE_LEN_MAX)?;
        }
        if let Some(KeyPrefix::Fixed(len)) = self.prefix {
            check("bytes of prefix", len, 1, u8::MAX)?;
        }
        if self.prefix.is_some() && self.filter_bits_per_key == 0 {
            return Err(Error::invalid(
                "option prefix has no effect without filters: set filter_bits_per_key above 0",
            ));
        }
        check("bytes of policy.name", self.policy.name.len(), 1, POLICY_NAME_LEN_MAX)?;
        check("bytes of policy.parameters", self.policy.parameters.len(), 0, POLICY_PARAMETERS_LEN_MAX)?;
        if let Some(operator) = &self.merge_operator {
            check("bytes of merge_operator", operator.name().len(), 1, named::NAME_LEN_MAX)?;
        }
        self.expert.check_ranges()?;
        table::compress::require(self.compression)
    }

    /// Fails if the store does not know the policy or the merge operator, or if the parameters of
    /// the policy are invalid.
    pub(crate) fn check_names(&self, store: &Options) -> Result<()> {
        if let Some(operator) = &self.merge_operator {
            store.expert.merge_operators.find(operator)?;
        }
        store.expert.policies.make(&self.policy, &self.tree(store.expert.ablation)).map(drop)
    }

    /// Returns the arguments of a compaction policy.
    pub(crate) fn tree(&self, ablation: Ablation) -> TreeOptions {
        TreeOptions {
            l0_compaction_files: self.expert.l0_compaction_files,
            l0_slowdown_files: self.expert.l0_slowdown_files,
            level_base_bytes: self.expert.level_base_bytes,
            level_multiplier: u64::from(self.expert.level_multiplier),
            levels: self.expert.levels,
            file_bytes: self.expert.file_bytes,
            compensated: ablation.compensated_size,
            choice: match ablation.least_overlap {
                true => FileChoice::MinOverlap,
                false => FileChoice::LargestCompensated,
            },
        }
    }

    /// Encodes the options for the manifest, with all derived values filled in.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.clone().derived().encode_derived()
    }

    fn encode_derived(&self) -> Vec<u8> {
        let version = match (self.prefix, &self.merge_operator, self.policy == PolicyChoice::default()) {
            (Some(_), ..) => FAMILY_OPTIONS_VERSION,
            (None, Some(_), _) => 5,
            (None, None, false) => 4,
            (None, None, true) => 2,
        };
        let mut out = vec![version, self.compression as u8];
        for v in [
            self.expert.block_bytes as u64,
            u64::from(self.filter_bits_per_key),
            self.expert.file_bytes,
            self.expert.level_base_bytes,
            u64::from(self.expert.level_multiplier),
            self.expert.levels as u64,
            self.expert.l0_compaction_files as u64,
            self.expert.l0_slowdown_files as u64,
            self.expert.l0_stop_files as u64,
            self.min_blob_size as u64,
            self.expert.vsst_bytes,
            u64::from(self.expert.gc_ratio_percent),
        ] {
            put_varint(&mut out, v);
        }
        if version >= 4 {
            out.push(PLACED_IN_TABLES);
            put_bytes(&mut out, self.policy.name.as_bytes());
            put_varint(&mut out, u64::from(self.policy.version));
            put_bytes(&mut out, &self.policy.parameters);
        }
        if version >= 5 {
            let name = self.merge_operator.as_ref().map_or("", MergeChoice::name);
            put_bytes(&mut out, name.as_bytes());
        }
        if let Some(prefix) = self.prefix {
            put_varint(&mut out, prefix.code());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::new(bytes);
        let version = r.u8()?;
        if !(1..=FAMILY_OPTIONS_VERSION).contains(&version) {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the stored options of a column family have version {version}, and this release reads \
                     up to {FAMILY_OPTIONS_VERSION}: open the store with a newer release"
                ),
            ));
        }
        let code = r.u8()?;
        let compression = Compression::from_u8(code).ok_or_else(|| {
            Error::corruption(format!(
                "the compression code {code} in the stored options of a column family is unknown"
            ))
        })?;
        // Values too large for their types saturate, and fail the range checks.
        let size = |v: u64| usize::try_from(v).unwrap_or(usize::MAX);
        let narrow = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        let (block_bytes, filter_bits_per_key) = (size(r.varint()?), narrow(r.varint()?));
        let expert = ExpertFamilyOptions {
            block_bytes,
            file_bytes: r.varint()?,
            level_base_bytes: r.varint()?,
            level_multiplier: narrow(r.varint()?),
            levels: size(r.varint()?),
            l0_compaction_files: size(r.varint()?),
            l0_slowdown_files: size(r.varint()?),
            l0_stop_files: size(r.varint()?),
            ..ExpertFamilyOptions::default()
        };
        let mut options = FamilyOptions {
            compression,
            min_blob_size: 0,
            filter_bits_per_key,
            prefix: None,
            policy: PolicyChoice::default(),
            merge_operator: None,
            expert,
        };
        if version >= 2 {
            options.min_blob_size = size(r.varint()?);
            options.expert.vsst_bytes = r.varint()?;
            options.expert.gc_ratio_percent = narrow(r.varint()?);
        }
        if version >= 3 {
            decode_placement(&mut r)?;
        }
        if version >= 4 {
            options.policy = decode_policy(&mut r)?;
        }
        if version >= 5 {
            let name = decode_name("merge operator", &mut r)?;
            options.merge_operator =
                Some(MergeChoice::custom(name)).filter(|choice| version == 5 || !choice.name().is_empty());
        }
        if version >= 6 {
            options.prefix = Some(decode_prefix(&mut r)?);
        }
        options.check_ranges().map_err(|e| e.context("family options in the manifest"))?;
        Ok(options)
    }
}

/// Reads the place where an earlier release put values first, which this release ignores.
fn decode_placement(r: &mut Reader<'_>) -> Result<()> {
    match r.u8()? {
        PLACED_IN_TABLES | PLACED_IN_LOG => Ok(()),
        n => Err(Error::corruption(format!(
            "the value placement {n} in the stored options of a column family is unknown"
        ))),
    }
}

fn decode_policy(r: &mut Reader<'_>) -> Result<PolicyChoice> {
    let name = decode_name("compaction policy", r)?;
    let version = u32::try_from(r.varint()?).map_err(|_| {
        Error::corruption(
            "the version of the compaction policy in the stored options of a column family exceeds 32 bits",
        )
    })?;
    Ok(PolicyChoice { name, version, parameters: r.bytes()?.to_vec() })
}

fn decode_prefix(r: &mut Reader<'_>) -> Result<KeyPrefix> {
    let code = r.varint()?;
    KeyPrefix::from_code(code).ok_or_else(|| {
        Error::corruption(format!(
            "the kind {code} of key prefix in the stored options of a column family is unknown"
        ))
    })
}

fn decode_name(of: &str, r: &mut Reader<'_>) -> Result<String> {
    String::from_utf8(r.bytes()?.to_vec()).map_err(|_| {
        Error::corruption(format!(
            "the name of the {of} in the stored options of a column family is not UTF-8"
        ))
    })
}

#[cfg(test)]
mod tests;
