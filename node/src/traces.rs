//! Spans are made with `tracing`. Where the process exports traces, each of them is a span of
//! OpenTelemetry, too. This module carries traces from one process to the next: a span may continue
//! the span of another process, and a message may name the span that it belongs to.
//!
//! As long as no traces are exported, all of this does nothing.

use std::sync::OnceLock;
use std::time::SystemTime;

use bytes::Bytes;
use opentelemetry::trace::{
    Span as _, SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, Tracer,
};
use opentelemetry::{Context, KeyValue, global};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use volary_flight_proto::trace::TraceParent;

/// Name of the instrumentation in exported spans.
pub const INSTRUMENTATION: &str = "volary";

static IS_EXPORTING: OnceLock<()> = OnceLock::new();

/// Notes that this process exports traces from now on.
pub fn set_exporting() {
    IS_EXPORTING.get_or_init(|| ());
}

fn is_exporting() -> bool {
    IS_EXPORTING.get().is_some()
}

/// Makes a new span continue a span of another process. Call it before the span is entered.
pub fn continue_from(span: &Span, parent: Option<TraceParent>) {
    let Some(parent) = parent.filter(|_| is_exporting()) else {
        return;
    };
    let remote = SpanContext::new(
        TraceId::from_bytes(parent.trace_id),
        SpanId::from_bytes(parent.span_id),
        TraceFlags::new(parent.flags),
        true,
        TraceState::default(),
    );
    // It fails only if no layer exports the span, and then nothing is to be continued.
    let _ = span.set_parent(Context::new().with_remote_span_context(remote));
}

/// Returns what a message to another process says of the span that it belongs to. Returns `None` if
/// no traces are exported, or if the span is not exported.
pub fn parent_of(span: &Span) -> Option<TraceParent> {
    if !is_exporting() || span.is_none() {
        return None;
    }
    let context = span.context();
    let context = context.span().span_context().clone();
    context.is_valid().then(|| TraceParent {
        trace_id: context.trace_id().to_bytes(),
        span_id: context.span_id().to_bytes(),
        flags: context.trace_flags().to_u8(),
    })
}

/// Returns what a message says of its span, as bytes. They are empty if there is nothing to say.
pub fn parent_bytes(span: &Span) -> Bytes {
    parent_of(span).map_or_else(Bytes::new, |parent| {
        Bytes::copy_from_slice(&parent.to_bytes())
    })
}

/// Returns whether spans below this one are exported.
pub fn is_recorded(span: &Span) -> bool {
    is_exporting() && !span.is_none() && span.context().span().span_context().is_sampled()
}

/// Exports a span below `parent` that has already ended.
pub fn record_ended(
    parent: &Span,
    name: String,
    (started, ended): (SystemTime, SystemTime),
    attributes: impl IntoIterator<Item = (&'static str, i64)>,
) {
    let tracer = global::tracer(INSTRUMENTATION);
    let attributes = attributes
        .into_iter()
        .map(|(key, value)| KeyValue::new(key, value));
    let mut span = tracer
        .span_builder(name)
        .with_start_time(started)
        .with_attributes(attributes)
        .start_with_context(&tracer, &parent.context());
    span.end_with_timestamp(ended);
}
