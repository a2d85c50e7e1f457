import { stat, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { exportTrace, type TraceEvent } from '../src/util/spans.ts'
import { findBrowser } from './chromium.ts'
import { serve } from './serve.ts'
import { launchForTraining } from './train/browser.ts'
import { openCheckpoints } from './train/checkpoint-dir.ts'
import { checkDataFolder } from './train/data-folder.ts'
import { dataMount, parseOptions, type TrainOptions } from './train/options.ts'
import { OutFile } from './train/out-file.ts'
import { makeReporter, type Reporter } from './train/report.ts'
import { oneLine } from './train/tab-group.ts'
import { trainInTabs } from './train/tabs.ts'

/**
 * `npm run train -- …`: trains in N headless tabs, as torchrun trains in N processes.
 *
 * Order: settings, data, checkpoints and `--out` are checked before anything is started; then pages, server, browser, tabs. Whatever was
 * started is ended again in the reverse order, in every case.
 */

/** Why the run stops before its end without an error of its own. */
class Interrupt extends Error {
  constructor(readonly exitCode: number) {
    super('interrupted')
  }
}

/** 128 + SIGPIPE: there is nobody to tell. */
const brokenPipe = 141

/** npm, tsx and the terminal may each send the same Ctrl-C: only one that comes later is a second one. */
const secondInterruptMs = 700
const closeTimeoutMs = 8000

/** A signal that aborts with an `Interrupt` on Ctrl-C and its like; a second Ctrl-C ends the process at once. */
function interruptSignal(): AbortSignal {
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
  // Whoever read our output has gone (`| head`): there is nobody left to train for.
  process.stdout.on('error', () => controller.abort(new Interrupt(brokenPipe)))
  return controller.signal
}

/** Runs `close`, but not for ever. */
async function closeSoon(close: () => Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const limit = new Promise((resolve) => {
    timer = setTimeout(resolve, closeTimeoutMs)
  })
  try {
    await Promise.race([close(), limit])
  } catch (thrown) {
    process.stderr.write(`train: while closing: ${oneLine(messageOf(thrown))}\n`)
  } finally {
    clearTimeout(timer)
  }
}

async function train(
  options: TrainOptions,
  reporter: Reporter,
  signal: AbortSignal,
): Promise<void> {
  const { dataFolder, outFile } = options
  const toClose: (() => Promise<unknown>)[] = []
  try {
    if (dataFolder !== undefined) await checkDataFolder(resolve(dataFolder))
    findBrowser()
    const out = outFile === undefined ? null : await OutFile.open(outFile)
    if (out) toClose.push(() => out.discard())
    const checkpoints = options.checkpoints && (await openCheckpoints(options.checkpoints))
    signal.throwIfAborted()

    // Vite is the slowest import by far; wrong input is refused without it.
    const { ensureBuilt } = await import('./build.ts')
    const root = await ensureBuilt({ log: (line) => reporter.note(line) })
    signal.throwIfAborted()
    const served = await serve({
      root,
      port: 0,
      mounts: dataFolder === undefined ? undefined : { [dataMount]: resolve(dataFolder) },
      writable: checkpoints?.writable,
      extraRoutes: checkpoints?.routes,
    })
    toClose.push(() => served.close())
    const { isHeaded, switches, traceFile } = options
    const trace = traceFile === undefined ? null : await OutFile.open(traceFile, '--trace')
    if (trace) toClose.push(() => trace.discard())
    const timesKernels = Number(switches.debug ?? 0) >= 2 || switches.trace !== undefined
    const isOnCpu = options.device === 'cpu'
    if (isOnCpu) reporter.note('computing on the CPU with the plain references, which are slow')
    // The references need no adapter: the one that starts everywhere will do.
    const adapter = isOnCpu ? 'software' : options.adapter
    const browser = await launchForTraining(adapter, { isHeaded, timesKernels }, (line) =>
      reporter.note(line),
    )
    toClose.push(() => browser.close())
    signal.throwIfAborted()

    const spans: TraceEvent[] = []
    const results = await trainInTabs({
      browser,
      url: served.localUrl,
      worldSize: options.worldSize,
      config: options.config,
      timeoutMs: options.timeoutMs,
      saveTo: out?.temporaryPath,
      checkpoints: checkpoints?.address,
      signal,
      onEvent: (event) => reporter.event(event),
      switches,
      onLine: (line) => reporter.note(line),
      onTrace: trace ? (json) => spans.push(...JSON.parse(json)) : undefined,
    })
    if (trace) {
      await writeFile(trace.temporaryPath, exportTrace(spans))
      await trace.commit((bytes) => JSON.parse(String(bytes)))
    }
    if (out) await out.commit()
    reporter.done(results, out && { path: out.path, sizeBytes: (await stat(out.path)).size })
  } finally {
    reporter.stop()
    for (const close of toClose.reverse()) await closeSoon(close)
  }
}

/** What to try, where the error itself cannot know of our options. */
function hintFor(thrown: unknown): string {
  const isWithoutGpu = thrown instanceof TabringError && thrown.code === 'gpu.unavailable'
  return isWithoutGpu
    ? ' Try --adapter software, --device cpu, or another browser by TABRING_BROWSER.'
    : ''
}

/** Returns the exit code, after everything that was started has ended. */
async function main(argv: string[]): Promise<number> {
  const signal = interruptSignal()
  let kept = 'no weights were kept'
  try {
    const parsed = parseOptions(argv)
    if (parsed.kind === 'help') {
      process.stdout.write(parsed.text)
      return 0
    }
    const { options } = parsed
    const { folder } = options.checkpoints ?? {}
    if (folder !== undefined) kept = `${folder} keeps the checkpoints; --resume latest goes on`
    const { batchSize, epochs } = options.config
    const { isJson, worldSize } = options
    const reporter = makeReporter(
      { isJson, worldSize, batchSize, epochs },
      process.stdout,
      process.stderr,
    )
    await train(options, reporter, signal)
    return 0
  } catch (thrown) {
    if (thrown instanceof Interrupt) {
      if (thrown.exitCode !== brokenPipe) process.stderr.write(`train: interrupted; ${kept}\n`)
      return thrown.exitCode
    }
    process.stderr.write(`train: ${oneLine(messageOf(thrown))}${hintFor(thrown)}\n`)
    return 1
  }
}

const exitCode = await main(process.argv.slice(2))
// Exit even if a handle is still open, but not before the output has gone out.
process.stdout.write('', () => process.exit(exitCode))
