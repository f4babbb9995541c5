use datafusion::common::parsers::CompressionTypeVariant;
use volary_flight_proto::{Error, Result};

use crate::sql::copy::CopyFrom;

/// The format and the compression of a file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    Parquet,
    Csv {
        delimiter: u8,
        compression: CompressionTypeVariant,
    },
    Json {
        compression: CompressionTypeVariant,
    },
}

impl Format {
    /// Returns the format that the option FORMAT or, without it, the name of the file says.
    /// `is_local` says whether the file is on a local disk, and not in a remote store.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown format, and for a compression that is not supported in
    /// remote stores.
    pub(super) fn detect(copy: &CopyFrom, name: &str, is_local: bool) -> Result<Self> {
        let mut stem = name.to_lowercase();
        let mut compression = CompressionTypeVariant::UNCOMPRESSED;
        for (suffix, variant) in [
            (".gz", CompressionTypeVariant::GZIP),
            (".zst", CompressionTypeVariant::ZSTD),
            (".bz2", CompressionTypeVariant::BZIP2),
            (".xz", CompressionTypeVariant::XZ),
        ] {
            if let Some(rest) = stem.strip_suffix(suffix) {
                (stem, compression) = (rest.to_owned(), variant);
                break;
            }
        }
        if !is_local && !reads_all_members(compression) {
            return Err(Error::invalid(format!(
                "file {name}: a file with this compression may have several parts, and only the first part can be read from a remote store; compress the file with gzip, or copy it to a local root"
            )));
        }
        let extension = stem.rsplit_once('.').map_or("", |(_, extension)| extension);
        match copy.options.format.as_deref().unwrap_or(extension) {
            "parquet" | "parq" => Ok(Self::Parquet),
            "csv" => Ok(Self::Csv {
                delimiter: b',',
                compression,
            }),
            "tsv" => Ok(Self::Csv {
                delimiter: b'\t',
                compression,
            }),
            "json" | "ndjson" | "jsonl" => Ok(Self::Json { compression }),
            other => Err(Error::invalid(format!(
                "file {name}: format \"{other}\" is not known; add WITH (FORMAT parquet), (FORMAT csv) or (FORMAT json)"
            ))),
        }
    }
}

/// Returns whether DataFusion's decoder for streams reads all members of a compressed file, and not
/// only the first. The decoders for local files do so for all compressions.
fn reads_all_members(compression: CompressionTypeVariant) -> bool {
    matches!(
        compression,
        CompressionTypeVariant::GZIP | CompressionTypeVariant::UNCOMPRESSED
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::names::WrittenName;

    #[test]
    fn of_other_stores_only_gzip_is_decompressed() {
        let copy = CopyFrom {
            table: WrittenName::new(None, "t".to_owned()),
            columns: Vec::new(),
            location: String::new(),
            options: crate::sql::copy::CopyOptions::default(),
        };
        for name in ["a.csv.zst", "a.json.bz2", "a.csv.xz"] {
            assert!(Format::detect(&copy, name, true).is_ok(), "{name}");
            let error = Format::detect(&copy, name, false).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
        for name in ["a.csv.gz", "a.json", "a.parquet"] {
            assert!(Format::detect(&copy, name, false).is_ok(), "{name}");
        }
    }
}
