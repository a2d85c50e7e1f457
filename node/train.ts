import { createReadStream } from 'node:fs'
import { stat, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { resolve } from 'node:path'
import { pipeline } from 'node:stream'
import { metaOf } from '../demos/experiments.ts'
import { type ErrorCode, messageOf, TabringError } from '../src/util/errors.ts'
import { formatRanks } from '../src/util/format-ranks.ts'
import { exportTrace, type TraceEvent } from '../src/util/spans.ts'
import { ensureBuilt } from './build.ts'
import { checkDataFolder, checkGivenFile, idxMount } from './data-folder.ts'
import { closeSoon } from './interrupt.ts'
import { failureText } from './launch/failure-text.ts'
import { codeOf, launch, type Program, type Start } from './launch/launch.ts'
import { dataMount } from './mounts.ts'
import { runCommand } from './run-command.ts'
import { type OpenedCheckpoints, openCheckpoints } from './train/checkpoint-dir.ts'
import { checkRanks, parseOptions, type TrainOptions } from './train/options.ts'
import { OutFile } from './train/out-file.ts'
import { makeReporter, type Reporter, type ReportSettings } from './train/report.ts'
import { RunLogOut } from './train/run-log-out.ts'
import { oneLine, type RankResult, type TabEvent } from './train/tab-group.ts'
import { trainInTabs } from './train/tabs.ts'
import { secretPrefix } from './writable-folders.ts'

/** `npm run train -- …`: trains in N headless tabs, as torchrun trains in N processes. */

/** Where the maker's tab finds what `--data-file` names: on the page's own server, which is this machine's alone. */
const givenRoute = secretPrefix('given')
/** Where rank 0's tab sends the trained weights. */
const saveRoute = secretPrefix('out')

/** One `npm run train`: its files, and what its ranks have said. */
class Training {
  readonly #options: TrainOptions
  readonly #settings: ReportSettings
  readonly #reporter: Reporter
  readonly #spans: TraceEvent[] = []
  readonly #toClose: (() => Promise<unknown>)[] = []
  #checkpoints: OpenedCheckpoints | undefined
  #out: OutFile | null = null
  #trace: OutFile | null = null
  #runLog: RunLogOut | null = null
  #results: RankResult[] = []
  #hasTrained = false
  #hasSaved = false
  /** Why the newest checkpoint is not there; null where it is. */
  #unsaved: string | null = null

  constructor(options: TrainOptions, settings: ReportSettings) {
    this.#options = options
    this.#settings = settings
    this.#reporter = makeReporter(settings, process.stdout, process.stderr)
  }

  /** errors: what was typed; the failure of the run; the reason of `signal`. */
  async run(signal: AbortSignal): Promise<void> {
    const reporter = this.#reporter
    try {
      const outcome = await launch(
        {
          name: 'train',
          options: this.#options,
          note: (line) => reporter.note(line),
          stop: () => reporter.stop(),
          check: () => this.#check(),
          prepare: () => this.#prepare(),
        },
        signal,
      )
      const { failure } = outcome
      if (failure) throw new TabringError(failure.code as ErrorCode, failureText(outcome))
      await this.#finish()
    } finally {
      reporter.stop()
      for (const close of this.#toClose.reverse()) await closeSoon('train', close)
    }
  }

  async #check(): Promise<void> {
    const { dataFolder, givenFile, outFile, checkpoints } = this.#options
    if (dataFolder !== undefined) await checkDataFolder(resolve(dataFolder))
    if (givenFile !== undefined) await checkGivenFile(resolve(givenFile))
    if (outFile !== undefined) this.#out = await this.#open(outFile, '--out')
    if (checkpoints) this.#checkpoints = await openCheckpoints(checkpoints)
  }

  async #open(path: string, flag: string): Promise<OutFile> {
    const file = await OutFile.open(path, flag)
    this.#toClose.push(() => file.discard())
    return file
  }

  async #prepare(): Promise<Program> {
    const { traceFile, runLogFile, config, dataFolder, givenFile } = this.#options
    const note = (line: string) => this.#reporter.note(line)
    const root = await ensureBuilt({ log: note, isTraining: true })
    if (traceFile !== undefined) this.#trace = await this.#open(traceFile, '--trace')
    if (runLogFile !== undefined) {
      const runLog = await RunLogOut.open(runLogFile, config)
      this.#toClose.push(() => runLog.close(note))
      this.#runLog = runLog
    }
    const out = this.#out
    return {
      pages: {
        root,
        mounts:
          dataFolder === undefined ? undefined : { [dataMount]: idxMount(resolve(dataFolder)) },
        writable: this.#checkpoints?.writable,
        extraRoutes: {
          ...this.#checkpoints?.routes,
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
      },
      run: (start) => this.#train(start),
    }
  }

  async #train({ part, ranks, coordination, stop, fail, say, ...start }: Start): Promise<void> {
    const { config, elastic, relay, timeoutMs, givenFile, switches, transport } = this.#options
    const reporter = this.#reporter
    const isFirst = part.attempt === 0
    if (!isFirst) this.#runLog?.endAttempt()
    this.#spans.length = 0
    this.#settings.worldSize = elastic?.min ?? part.worldSize
    if (part.firstRank > 0)
      reporter.note(
        `here: ${formatRanks(ranks)} of ${part.worldSize}; the launcher of rank 0 shows how the run goes`,
      )
    // A debug switch prints into the console.
    const isShown = Object.keys(switches).length > 0
    try {
      checkRanks(this.#options, part.worldSize)
      this.#results = await trainInTabs({
        browser: start.browser,
        url: start.served.localUrl,
        worldSize: elastic?.min ?? ranks.length,
        ranks: elastic?.min ?? part.worldSize,
        firstRank: part.firstRank,
        range: elastic && { ...elastic, max: ranks.length },
        restarts: start.restarts,
        room: coordination.keys.room(part.attempt),
        transport,
        isRelayed: relay,
        timeoutMs,
        config: !isFirst && this.#hasSaved ? { ...config, resume: 'latest' } : config,
        checkpoints: isFirst
          ? this.#checkpoints?.address
          : this.#checkpoints?.again(this.#hasSaved),
        saveTo: this.#out ? saveRoute : undefined,
        given: givenFile === undefined ? undefined : givenRoute,
        signal: stop,
        switches: start.switches,
        onEvent: (event) => this.#take(event),
        onNotice: (line) => reporter.note(line),
        onSay: (rank, stream, text, name) =>
          say(rank, stream, text, (line) => {
            if (isShown && line.startsWith('tabring')) reporter.note(`${name}: ${line}`)
          }),
        onTrace: this.#trace ? (json) => this.#spans.push(...JSON.parse(json)) : undefined,
      })
    } catch (thrown) {
      if (stop.aborted) return
      const code = codeOf(thrown)
      fail({ rank: null, code, text: oneLine(messageOf(thrown)), hasTrained: this.#hasTrained })
    }
  }

  #take(event: TabEvent): void {
    this.#hasTrained ||= event.event === 'step'
    this.#hasSaved ||= event.event === 'checkpoint'
    if (event.event === 'checkpoint') this.#unsaved = null
    if (event.event === 'unsaved') this.#unsaved = event.text
    this.#runLog?.add(event)
    this.#reporter.event(event)
  }

  /** Puts the files in place, and sums up. */
  async #finish(): Promise<void> {
    const [out, trace, [{ result }]] = [this.#out, this.#trace, this.#results]
    // First: whatever fails from here on, the run has reached its end.
    await this.#runLog?.write({ step: result.steps, paramHash: result.paramHash })
    if (trace) {
      await writeFile(trace.temporaryPath, exportTrace(this.#spans))
      await trace.commit((bytes) => JSON.parse(String(bytes)))
    }
    // The tab with rank 0 may be another machine's.
    const own = this.#results[0].rank === 0 ? out : null
    await own?.commit()
    const summary = own && { path: own.path, sizeBytes: (await stat(own.path)).size }
    this.#reporter.done(this.#results, summary)
    if (this.#unsaved !== null)
      throw new TabringError(
        'file.unwritable',
        `--checkpoint-dir: the run has ended, but its last checkpoint was not written: ${this.#unsaved}`,
      )
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
  const { isJson } = options
  await new Training(options, { isJson, worldSize: 1, epochs, metric }).run(signal)
  return 0
}

await runCommand('train', main, {
  interrupted: () => kept,
  failed: (thrown) => `${oneLine(messageOf(thrown))}${hintFor(thrown)}`,
})
