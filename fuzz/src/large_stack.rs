/// Stack size of a node's own threads, in bytes.
const STACK_BYTES: usize = 16 << 20;

/// Runs `work` on a stack as large as the stacks of a node's threads.
pub(crate) fn run<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        let running = thread.spawn_scoped(scope, work).expect("there are threads");
        running
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
