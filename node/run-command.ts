import { brokenPipe, endProcess, Interrupt, interruptSignal } from './interrupt.ts'

/** The words of a command that ends before its time. */
export interface EndWords {
  /** Behind `<command>: interrupted; `. */
  interrupted(): string
  /** Behind `<command>: `. */
  failed(thrown: unknown): string
}

/**
 * Runs a command's `main` and ends the process: with the exit code that it returns, 1 and a line on standard error where it throws, 130 and
 * the like on Ctrl-C and the like.
 */
export async function runCommand(
  command: string,
  main: (argv: readonly string[], signal: AbortSignal) => Promise<number>,
  { interrupted, failed }: EndWords,
): Promise<void> {
  const signal = interruptSignal()
  let exitCode: number
  try {
    exitCode = await main(process.argv.slice(2), signal)
  } catch (thrown) {
    const isInterrupt = thrown instanceof Interrupt
    exitCode = isInterrupt ? thrown.exitCode : 1
    const words = isInterrupt ? `interrupted; ${interrupted()}` : failed(thrown)
    if (exitCode !== brokenPipe) process.stderr.write(`${command}: ${words}\n`)
  }
  // Exit even if a handle is still open, but not before the output has gone out.
  process.stdout.write('', () => endProcess(exitCode))
}
