import type { Metric } from '../../src/trainer/settings/demo-meta.ts'
import { formatRanks } from '../../src/util/format-ranks.ts'
import type { Output } from '../output.ts'
import { Screen } from '../screen.ts'
import { oneLine, type RankResult, type TabEvent } from './tab-group.ts'

/** Output of a run for the person who started it. */
export interface Reporter {
  /** One line about something out of the ordinary. */
  note(line: string): void
  /** Any rank's event. */
  event(event: TabEvent): void
  /** The run ended well; `outFile` is where the weights are. */
  done(results: RankResult[], outFile: OutSummary | null): void
  /** Leaves the terminal clean; called in every case, before an error line is printed. */
  stop(): void
}

export interface OutSummary {
  path: string
  sizeBytes: number
}

export interface ReportSettings {
  readonly isJson: boolean
  /** Of the start that is on. */
  worldSize: number
  /** Passes that are asked for; null where steps are. */
  epochs: number | null
  /** What the demo measures beside the loss. */
  metric: Metric
}

/** Lines, on a terminal with a bar below them, or JSON lines when asked for. Notes go to `error`. */
export function makeReporter(settings: ReportSettings, output: Output, error: Output): Reporter {
  const Kind = settings.isJson ? JsonReporter : PeopleReporter
  return new Kind(settings, output, error)
}

/** Which events are reported: those of rank 0, those of a rank that waits for others, and once what all ranks have found, who waits outside, whose connection is slow, and whose gradients do not count. */
class ReportedEvents {
  readonly #unlike = new Set<string>()
  readonly #waiting = new Set<string>()
  readonly #slow = new Set<string>()
  readonly #leftOut = new Set<number>()

  takes(event: TabEvent): boolean {
    if (event.event === 'undecided') return true
    if (event.event === 'waits') {
      const isNew = event.rank === 0 && event.why !== null && !this.#waiting.has(event.who)
      if (isNew) this.#waiting.add(event.who)
      return isNew
    }
    if (event.event === 'holdsUp') {
      const { who } = event
      if (who === null || this.#slow.has(who)) return false
      this.#slow.add(who)
      return true
    }
    if (event.event === 'leftOut') {
      const news = event.rank === 0 ? event.ranks.filter((rank) => !this.#leftOut.has(rank)) : []
      for (const rank of news) this.#leftOut.add(rank)
      return news.length > 0
    }
    if (event.event !== 'unlike') return event.rank === 0
    // All find the same, and rank 0 may be lost before it says so.
    const found = `${event.step} ${event.text}`
    const isNew = !this.#unlike.has(found)
    this.#unlike.add(found)
    return isNew
  }
}

type StepEvent = Extract<TabEvent, { event: 'step' }>

/** The objects that `--json` prints, one a line: rank 0's steps and tests, its checkpoints, changes of ranks, and the end. */
class JsonReporter implements Reporter {
  readonly #reported = new ReportedEvents()

  constructor(
    private readonly settings: ReportSettings,
    private readonly output: Output,
    private readonly error: Output,
  ) {}

  note(line: string): void {
    this.error.write(`train: ${line}\n`)
  }

  event(event: TabEvent): void {
    if (!this.#reported.takes(event)) return
    if (event.event === 'step')
      this.#print({
        event: 'step',
        step: event.step,
        loss: event.loss,
        value: event.value,
        rank: 0,
        timesMs: roundedTimes(event.times),
      })
    if (event.event === 'evaluation') {
      const { step, epoch, loss, metric, value } = event
      this.#print({ event: 'evaluation', step, epoch, loss, metric, value, rank: 0 })
    }
    const printed = [
      'resumed',
      'checkpoint',
      'regrouped',
      'unlike',
      'devices',
      'undecided',
      'waits',
      'holdsUp',
      'broke',
      'state',
      'leftOut',
      'unsaved',
    ]
    if (printed.includes(event.event)) this.#print(event)
  }

  done(results: RankResult[]): void {
    const { steps, loss, trainValue, testAccuracy, heldOutLoss, value, seconds } = results[0].result
    this.#print({
      event: 'done',
      worldSize: results.length,
      steps,
      loss,
      heldOutLoss,
      metric: this.settings.metric.name,
      trainValue,
      value,
      testAccuracy,
      paramHashes: results.map(({ result }) => result.paramHash),
      bytesSentPerRank: results.map(({ bytesSent }) => bytesSent),
      linksPerRank: results.map(({ links }) => links),
      samplesPerRank: results.map(({ result }) => result.samples),
      seconds,
    })
  }

  stop(): void {
    // Nothing is drawn, so nothing needs to be taken away.
  }

  #print(value: object): void {
    this.output.write(`${JSON.stringify(value)}\n`)
  }
}

/** To microseconds; the rest is noise. */
const roundedTimes = (times: StepEvent['times']): StepEvent['times'] =>
  Object.fromEntries(
    Object.entries(times).map(([part, ms]) => [part, Math.round(ms * 1000) / 1000]),
  )

const phaseNames: Record<string, string> = {
  load: 'loading the data',
  compile: 'compiling',
  broadcast: 'sending the initial parameters',
  train: 'training',
  evaluate: 'testing',
}

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 })
const metricText = ({ unit }: Metric, value: number | null | undefined) =>
  value === null || value === undefined
    ? 'unknown'
    : unit === 'share'
      ? `${(100 * value).toFixed(2)} %`
      : `${value.toFixed(4)} ${unit}`.trim()
/** Loss and metric together, or the one of them that says both. */
const bothText = (metric: Metric, loss: number | null, value: number | null) =>
  metric.ofLoss === undefined
    ? `loss ${lossText(loss)}, ${metric.name} ${metricText(metric, value)}`
    : metric.ofLoss === 1
      ? `${metric.name} ${metricText(metric, value)}`
      : `loss ${lossText(loss)}, ${metricText(metric, value)}`
const lossText = (loss: number | null) => (loss === null ? 'not a number' : loss.toFixed(4))

/** Time between two lines about a state that is sent. */
const lineEveryMs = 5000

/** Words for people. */
class PeopleReporter implements Reporter {
  readonly #screen: Screen
  #stepsDone = 0
  readonly #reported = new ReportedEvents()
  readonly #partsMs = new Map<string, number>()
  #lastStateMs = Number.NEGATIVE_INFINITY
  #latest: string | undefined
  #devices: readonly string[] = []
  #best: string | undefined

  constructor(
    private readonly settings: ReportSettings,
    private readonly output: Output,
    error: Output,
  ) {
    this.#screen = new Screen('train', output, error)
  }

  note(line: string): void {
    this.#screen.note(line)
  }

  event(event: TabEvent): void {
    if (!this.#reported.takes(event)) return
    if (event.event === 'phase') this.#screen.phase(phaseNames[event.phase] ?? event.phase)
    if (event.event === 'evaluation') {
      const { epoch, loss, value } = event
      this.#print(`epoch ${epoch + 1}: test ${bothText(this.settings.metric, loss, value)}`)
    }
    if (event.event === 'resumed') this.#resumed(event)
    if (event.event === 'devices') this.#tellDevices(event.devices)
    if (event.event === 'regrouped')
      this.note(`continuing from step ${event.step}, world size ${event.worldSize}`)
    if (event.event === 'waits') this.note(`a new tab waits: ${event.why}`)
    if (event.event === 'holdsUp')
      this.note(`the connection of a tab holds up the run: ${event.why}`)
    if (event.event === 'broke')
      this.note(`${event.name ?? 'a tab'} ${event.what}: its link has ended`)
    if (event.event === 'state') this.#state(event)
    if (event.event === 'unsaved')
      this.note(`no checkpoint after step ${event.step}: ${event.text}`)
    if (event.event === 'leftOut')
      this.note(
        event.text
          ? `a step is left out on all ranks: ${event.text}`
          : `the gradients of ${formatRanks(event.ranks)} do not count in a step: not numbers, or far larger than those of the others`,
      )
    if (event.event === 'unlike') this.note(`after step ${event.step}: ${event.text}`)
    if (event.event === 'checkpoint') {
      this.#latest = event.name
      if (event.isBest) this.#best = event.name
      this.#print(`checkpoint ${event.name}${event.isBest ? ', the best so far' : ''}`)
    }
    if (event.event === 'step') {
      this.#stepsDone++
      for (const [part, ms] of Object.entries(event.times))
        this.#partsMs.set(part, (this.#partsMs.get(part) ?? 0) + ms)
      this.#step(event)
    }
  }

  /** Those that are news, since ranks may have come, or one may have opened another device. */
  #tellDevices(devices: readonly string[]): void {
    for (const [rank, device] of devices.entries())
      if (device !== this.#devices[rank]) this.note(`rank ${rank}: ${oneLine(device)}`)
    this.#devices = devices
  }

  #state({ doneBytes, totalBytes }: Extract<TabEvent, { event: 'state' }>): void {
    const now = performance.now()
    if (now - this.#lastStateMs < lineEveryMs && doneBytes < totalBytes) return
    this.#lastStateMs = now
    this.note(`sent ${sizeText(doneBytes)} of the state's ${sizeText(totalBytes)} to new tabs`)
  }

  /** Rank 0's mean step by part. */
  #stepText(): string {
    const mean = (part: string) => {
      const ms = (this.#partsMs.get(part) ?? 0) / Math.max(1, this.#stepsDone)
      return ms.toFixed(ms < 10 ? 2 : 1)
    }
    const parts = [...this.#partsMs.keys()].filter((part) => part !== 'total')
    return `${mean('total')} ms on rank 0: ${parts.map((part) => `${part} ${mean(part)}`).join(', ')}`
  }

  #resumed(event: Extract<TabEvent, { event: 'resumed' }>) {
    const { step, epoch, best, holders, stepsLeft, differences } = event
    const { metric, worldSize } = this.settings
    const reached = best === null ? '' : `, best ${metric.name} ${metricText(metric, best)}`
    this.note(
      stepsLeft > 0
        ? `resuming from step ${step} in epoch ${epoch + 1}${reached}`
        : `nothing left to train: the checkpoint is of the last step, ${step}${reached}`,
    )
    if (holders !== undefined) this.note(`${holders} of ${worldSize} ranks have this checkpoint`)
    if (differences.length > 0)
      this.note(`no longer bit for bit the saved run: ${differences.join('; ')}`)
  }

  #print(line: string): void {
    this.#screen.print('stdout', line)
  }

  #step({ step, totalSteps, epoch, loss, globalSamples: samples }: StepEvent): void {
    const { epochs } = this.settings
    // A line says the epoch after its last step.
    const ofBar = this.output.isTTY ? { epoch, epochs: epochs ?? undefined } : {}
    this.#screen.progress({ step, totalSteps, loss, samples, ...ofBar })
  }

  stop(): void {
    this.#screen.stop()
  }

  done(results: RankResult[], outFile: OutSummary | null): void {
    this.stop()
    const { steps, loss, trainValue, heldOutLoss, value, seconds } = results[0].result
    const { metric } = this.settings
    const samples = results.reduce((sum, { result }) => sum + result.samples, 0)
    const bytes = results.map(({ rank, bytesSent }) => `rank ${rank} ${sizeText(bytesSent)}`)
    const ranks = `${results.length} rank${results.length === 1 ? '' : 's'}`
    this.output.write(
      [
        `test           ${bothText(metric, heldOutLoss, value)}`,
        `last step      ${bothText(metric, loss, trainValue)}`,
        `time           ${seconds.toFixed(1)} s for ${whole.format(steps)} steps on ${ranks}, ${samples > 0 ? whole.format(samples / seconds) : '-'} samples/s`,
        // Of rank 0, which may be another machine's.
        ...(this.#stepsDone > 0 ? [`step time      ${this.#stepText()}`] : []),
        `sent           ${bytes.join(', ')}`,
        ...relayedText(results),
        `weights        ${outFile ? `${outFile.path} (${sizeText(outFile.sizeBytes)})` : 'not saved; pass --out FILE to save them'}`,
        ...(this.#latest === undefined
          ? []
          : [`checkpoints    latest ${this.#latest}${this.#best ? `, best ${this.#best}` : ''}`]),
        '',
      ].join('\n'),
    )
  }
}

/** The line that names the ranks with links through the server; none where there are no such links. */
function relayedText(results: readonly RankResult[]): string[] {
  const relayed = results.flatMap(({ rank, links }) => {
    const count = links.filter((kind) => kind === 'relay').length
    return count > 0 ? [`rank ${rank} ${count} of ${links.length} links`] : []
  })
  return relayed.length > 0 ? [`relayed        ${relayed.join(', ')}`] : []
}

/** units: bytes in, text with MiB or KiB out. */
function sizeText(bytes: number): string {
  return bytes >= 2 ** 20
    ? `${(bytes / 2 ** 20).toFixed(1)} MiB`
    : `${(bytes / 2 ** 10).toFixed(1)} KiB`
}
