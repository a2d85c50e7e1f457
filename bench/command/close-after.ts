/** Returns what `run` does; `close` has been called when it ends, and when Ctrl-C ends the process before. */
export async function closeAfter<T>(
  close: () => Promise<unknown>,
  run: () => Promise<T>,
): Promise<T> {
  const onInterrupt = () => {
    close().finally(() => process.exit(130))
  }
  process.once('SIGINT', onInterrupt)
  process.once('SIGTERM', onInterrupt)
  try {
    return await run()
  } finally {
    process.off('SIGINT', onInterrupt)
    process.off('SIGTERM', onInterrupt)
    await close()
  }
}
