/// The lookup that a client asks for in the descriptor of a DoExchange. It travels in an `Any` with
/// the type [`Self::TYPE_URL`].
///
/// Each batch of the client's stream has one column, the keys. Each batch is answered with the rows
/// of its keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LookupRequest {
    /// Name of the table, exactly as it is.
    #[prost(string, tag = "1")]
    pub table: String,
    /// Name of the table's schema. `None` stands for the current schema of the session.
    #[prost(string, optional, tag = "2")]
    pub schema: Option<String>,
    /// Name of the catalog. `None` stands for the only one.
    #[prost(string, optional, tag = "3")]
    pub catalog: Option<String>,
    /// Names of the columns that the client wants, in order. Empty for all columns.
    #[prost(string, repeated, tag = "4")]
    pub columns: Vec<String>,
    /// Says whether all batches see the writes that were committed when the stream was opened.
    /// Otherwise each batch sees what is committed when it is looked up.
    #[prost(bool, tag = "5")]
    pub one_snapshot: bool,
}

impl LookupRequest {
    /// The type of the message within an `Any`.
    pub const TYPE_URL: &str = "type.googleapis.com/volary.LookupRequest";
}
