import { messageOf } from '../src/util/errors.ts'

/** Why a command stops before its end without an error of its own. */
export class Interrupt extends Error {
  constructor(readonly exitCode: number) {
    super('interrupted')
  }
}

/** 128 + SIGPIPE: there is nobody to tell. */
export const brokenPipe = 141

/** npm, tsx and the terminal may each send the same Ctrl-C: only one that comes later is a second one. */
const secondInterruptMs = 700
const closeTimeoutMs = 8000

/**
 * Returns a signal that aborts with an `Interrupt` on Ctrl-C and its like; a second Ctrl-C ends the process at once. What is thrown where nobody
 * catches it aborts too, with that as the reason, so that whatever was started is ended in order.
 */
export function interruptSignal(): AbortSignal {
  const controller = new AbortController()
  let firstMs: number | null = null
  for (const [name, exitCode] of [
    ['SIGINT', 130],
    ['SIGTERM', 143],
    ['SIGHUP', 129],
  ] as const)
    process.on(name, () => {
      if (firstMs !== null && performance.now() - firstMs > secondInterruptMs)
        process.exit(exitCode)
      firstMs ??= performance.now()
      controller.abort(new Interrupt(exitCode))
    })
  process.on('uncaughtException', (error) => {
    process.stderr.write(`${error instanceof Error ? error.stack : error}\n`)
    controller.abort(
      new Error(`internal: uncaught error: ${messageOf(error)}. This is a defect in Tabring.`, {
        cause: error,
      }),
    )
  })
  // Whoever read our output has gone (`| head`): there is nobody left to work for.
  process.stdout.on('error', () => controller.abort(new Interrupt(brokenPipe)))
  return controller.signal
}

/** Runs `close`, but not for ever; `command` is who complains when it throws. */
export async function closeSoon(command: string, close: () => Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise((resolve) => {
    timer = setTimeout(resolve, closeTimeoutMs)
  })
  try {
    await Promise.race([close(), limit])
  } catch (thrown) {
    const [line] = messageOf(thrown).split('\n')
    process.stderr.write(`${command}: while closing: ${line}\n`)
  } finally {
    clearTimeout(timer)
  }
}
