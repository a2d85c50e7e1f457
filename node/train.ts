import { createReadStream } from 'node:fs'
import { stat, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { resolve } from 'node:path'
import { pipeline } from 'node:stream'
import { metaOf } from '../demos/experiments.ts'
import { newRoomLink } from '../src/peer/room/secret.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { orAbort } from '../src/util/or-abort.ts'
import { exportTrace, type TraceEvent } from '../src/util/spans.ts'
import { chosenBrowser } from './browser-choice.ts'
import { checkDataFolder, checkGivenFile, idxMount } from './data-folder.ts'
import { closeSoon } from './interrupt.ts'
import { dataMount } from './mounts.ts'
import { browserStarter, hostNote } from './open-browser.ts'
import { failsAgain, Restarts } from './restarts.ts'
import { roomOf } from './room-of.ts'
import { runCommand } from './run-command.ts'
import { serve } from './serve.ts'
import { openCheckpoints } from './train/checkpoint-dir.ts'
import { parseOptions, type TrainOptions } from './train/options.ts'
import { OutFile } from './train/out-file.ts'
import { makeReporter, type Reporter } from './train/report.ts'
import { RunLogOut } from './train/run-log-out.ts'
import { oneLine } from './train/tab-group.ts'
import { type TabsOptions, trainInTabs } from './train/tabs.ts'
import { secretPrefix } from './writable-folders.ts'

/**
 * `npm run train -- …`: trains in N headless tabs, as torchrun trains in N processes.
 *
 * Order: settings, data, checkpoints and `--out` are checked before anything is started; then pages, server, browser, tabs. Whatever was
 * started is ended again in the reverse order, in every case.
 */

/** Where the maker's tab finds what `--data-file` names: on the page's own server, which is this machine's alone. */
const givenRoute = secretPrefix('given')
/** Where rank 0's tab sends the trained weights. */
const saveRoute = secretPrefix('out')

async function train(
  options: TrainOptions,
  reporter: Reporter,
  signal: AbortSignal,
): Promise<void> {
  const { dataFolder, givenFile, outFile, ice, isRelayed } = options
  const toClose: (() => Promise<unknown>)[] = []
  try {
    if (dataFolder !== undefined) await orAbort(checkDataFolder(resolve(dataFolder)), signal)
    if (givenFile !== undefined) await orAbort(checkGivenFile(resolve(givenFile)), signal)
    const startBrowser = await browserStarter(chosenBrowser(options.browser))
    const out = outFile === undefined ? null : await orAbort(OutFile.open(outFile), signal)
    if (out) toClose.push(() => out.discard())
    const checkpoints =
      options.checkpoints && (await orAbort(openCheckpoints(options.checkpoints), signal))
    signal.throwIfAborted()

    // Vite is the slowest import by far; wrong input is refused without it.
    const { ensureBuilt } = await import('./build.ts')
    /** By id: the key. */
    const ownRooms = new Set<string>()
    const root = await ensureBuilt({ log: (line) => reporter.note(line) })
    signal.throwIfAborted()
    const served = await serve({
      root,
      port: 0,
      mounts: dataFolder === undefined ? undefined : { [dataMount]: idxMount(resolve(dataFolder)) },
      writable: checkpoints?.writable,
      extraRoutes: {
        ...checkpoints?.routes,
        ...(out && {
          [saveRoute]: (request: IncomingMessage, response: ServerResponse) =>
            void out.receive(request, response),
        }),
        ...(givenFile !== undefined && {
          [givenRoute]: (_: unknown, response: ServerResponse) => {
            response.writeHead(200, { 'Content-Type': 'application/octet-stream' })
            // A read error ends the response short, which the demo reports.
            pipeline(createReadStream(resolve(givenFile)), response, () => undefined)
          },
        }),
      },
      signaling: {
        relay: isRelayed,
        // Nobody else of this machine gets TURN credentials or a relay here.
        mayCreate: (room) => ownRooms.has(room),
        ...(ice && { ice }),
      },
    })
    toClose.push(() => served.close())
    const { isHeaded, switches, traceFile } = options
    const trace = traceFile === undefined ? null : await OutFile.open(traceFile, '--trace')
    if (trace) toClose.push(() => trace.discard())
    const { config, restartsAll, runLogFile } = options
    const runLog = runLogFile === undefined ? null : await RunLogOut.open(runLogFile, config)
    if (runLog) toClose.push(() => runLog.close((line) => reporter.note(line)))
    const timesKernels = Number(switches.debug ?? 0) >= 2 || switches.trace !== undefined
    const note = hostNote(options.device)
    if (note) reporter.note(note)
    const spans: TraceEvent[] = []
    let hasTrained = false
    let hasSaved = false
    /** Why the newest checkpoint is not there; null where it is. */
    let unsaved: string | null = null
    const restarts = new Restarts(options.maxRestarts)
    const start = async (place: Pick<TabsOptions, 'config' | 'checkpoints'>) => {
      spans.length = 0
      const room = newRoomLink()
      ownRooms.add(roomOf(Buffer.from(room.key, 'base64url')))
      const browser = await startBrowser(
        options.adapter,
        { device: options.device, isHeaded, timesKernels },
        (line) => reporter.note(line),
      )
      try {
        signal.throwIfAborted()
        return await trainInTabs({
          ...place,
          browser,
          url: served.localUrl,
          worldSize: options.worldSize,
          range: options.range,
          restarts,
          room,
          isRelayed,
          timeoutMs: options.timeoutMs,
          saveTo: out ? saveRoute : undefined,
          given: givenFile === undefined ? undefined : givenRoute,
          signal,
          onEvent: (event) => {
            hasTrained ||= event.event === 'step'
            hasSaved ||= event.event === 'checkpoint'
            if (event.event === 'checkpoint') unsaved = null
            if (event.event === 'unsaved') unsaved = event.text
            runLog?.add(event)
            reporter.event(event)
          },
          onNotice: (line) => reporter.note(line),
          switches,
          onLine: (line) => reporter.note(line),
          onTrace: trace ? (json) => spans.push(...JSON.parse(json)) : undefined,
        })
      } finally {
        reporter.stop()
        await closeSoon('train', () => browser.close())
      }
    }
    let next = { config, checkpoints: checkpoints?.address }
    const results = await withRestarts(
      (reason) => (restartsAll && !failsAgain(reason, hasTrained) ? restarts.take() : null),
      () => start(next),
      (restart, reason) => {
        signal.throwIfAborted()
        next = {
          config: hasSaved ? { ...config, resume: 'latest' } : config,
          checkpoints: checkpoints?.again(hasSaved),
        }
        runLog?.endAttempt()
        reporter.note(oneLine(messageOf(reason)))
        reporter.note(restart)
      },
    )
    // First: whatever fails from here on, the run has reached its end.
    const [{ result }] = results
    await runLog?.write({ step: result.steps, paramHash: result.paramHash })
    if (trace) {
      await writeFile(trace.temporaryPath, exportTrace(spans))
      await trace.commit((bytes) => JSON.parse(String(bytes)))
    }
    if (out) await out.commit()
    reporter.done(results, out && { path: out.path, sizeBytes: (await stat(out.path)).size })
    if (unsaved !== null)
      throw new TabringError(
        'file.unwritable',
        `--checkpoint-dir: the run has ended, but its last checkpoint was not written: ${unsaved}`,
      )
  } finally {
    reporter.stop()
    for (const close of toClose.reverse()) await closeSoon('train', close)
  }
}

/**
 * Runs `start`, and again when it fails, as long as `take` gives the words of a restart. `onRestart` may end that by throwing. errors: the
 * last one's.
 */
async function withRestarts<T>(
  take: (reason: unknown) => string | null,
  start: () => Promise<T>,
  onRestart: (restart: string, reason: unknown) => void,
): Promise<T> {
  for (;;) {
    try {
      return await start()
    } catch (thrown) {
      const restart = take(thrown)
      if (restart === null) throw thrown
      onRestart(restart, thrown)
    }
  }
}

/** What to try, where the error itself cannot know of our options. */
function hintFor(thrown: unknown): string {
  const isWithoutGpu = thrown instanceof TabringError && thrown.code === 'gpu.unavailable'
  return isWithoutGpu
    ? ' Try --adapter software, --device cpu, or another browser with TABRING_BROWSER.'
    : ''
}

/** What is left of a run that was interrupted. */
let kept = 'no weights were saved'

/** Returns the exit code, after everything that was started has ended. */
async function main(argv: readonly string[], signal: AbortSignal): Promise<number> {
  const parsed = parseOptions(argv)
  if (parsed.kind === 'help') {
    process.stdout.write(parsed.text)
    return 0
  }
  const { options } = parsed
  const { folder } = options.checkpoints ?? {}
  if (folder !== undefined) kept = `the checkpoints are in ${folder}; continue with --resume latest`
  const { demo, steps } = options.config
  const epochs = steps === undefined ? options.config.epochs : null
  const { metric } = metaOf(demo)
  const { isJson, worldSize } = options
  const settings = { isJson, worldSize, epochs, metric }
  await train(options, makeReporter(settings, process.stdout, process.stderr), signal)
  return 0
}

await runCommand('train', main, {
  interrupted: () => kept,
  failed: (thrown) => `${oneLine(messageOf(thrown))}${hintFor(thrown)}`,
})
