import { messageOf } from '../src/util/errors.ts'

/** Why a command stops before its end without a failure. */
export class Interrupt extends Error {
  constructor(readonly exitCode: number) {
    super('interrupted')
  }
}

/** 128 + SIGPIPE: there is nobody to tell. */
export const brokenPipe = 141

/** The signals that end a command, and their exit codes. */
const endings = [
  ['SIGINT', 130],
  ['SIGTERM', 143],
  ['SIGHUP', 129],
] as const

/**
 * Ends the process. Node's own exit waits for calls of the file system, and one on a disk that does not answer never returns: then, and
 * where the call is to `force`, the interrupted process ends by the signal itself, which shells report as the same code.
 */
export function endProcess(exitCode: number, force = false): never {
  const [signal] = endings.find(([, code]) => code === exitCode) ?? []
  if (signal && (force || process.getActiveResourcesInfo().includes('FSReqPromise'))) {
    process.removeAllListeners(signal)
    process.kill(process.pid, signal)
  }
  process.exit(exitCode)
}

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
  for (const [name, exitCode] of endings)
    process.on(name, () => {
      if (firstMs !== null && performance.now() - firstMs > secondInterruptMs)
        endProcess(exitCode, true)
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
  for (const stream of [process.stdout, process.stderr])
    stream.on('error', () => controller.abort(new Interrupt(brokenPipe)))
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
