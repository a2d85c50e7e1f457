import { Command, Option } from 'commander'
import { parseTrainConfig } from '../demos/experiments.ts'
import { browserKinds, chosenBrowser } from '../node/browser-choice.ts'
import { ensureBuilt } from '../node/build.ts'
import { browserStarter } from '../node/open-browser.ts'
import { servePages } from '../node/own-pages.ts'
import { serve } from '../node/serve.ts'
import type { TabBrowser } from '../node/tab.ts'
import { messageOf } from '../src/util/errors.ts'
import { markdownTable } from '../src/util/markdown.ts'
import type { SwitchInputs } from '../src/util/switches.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import type {} from './devices/page.ts'
import { modelNames, models } from './models.ts'
import { median, pairRatios, spread } from './statistics.ts'
import { stepMs } from './step-ms.ts'

/** `npm run bench -- devices`: steps on the device `cpu` beside steps on the browser's software adapter, in Chromium and in Firefox. */

type BrowserName = (typeof browserKinds)[number]

interface Flags {
  browsers: BrowserName[]
  models: string[]
  batchSizes: BatchSize[]
  rounds: number
  ops?: RegExp
  json: boolean
  save: boolean
}

/** By batch size: the steps of a run, and how many of them are not counted. A large batch takes seconds a step on an adapter. */
const runs = {
  1: { steps: 60, skipped: 20 },
  64: { steps: 30, skipped: 10 },
  512: { steps: 6, skipped: 2 },
} as const
type BatchSize = keyof typeof runs
const batchSizes = Object.keys(runs).map(Number) as BatchSize[]

const devices = {
  adapter: { device: 'webgpu' },
  oneThread: { device: 'cpu', numThreads: 1 },
  twoThreads: { device: 'cpu', numThreads: 2 },
} as const satisfies Record<string, SwitchInputs>
type DeviceName = keyof typeof devices
const deviceNames = Object.keys(devices) as DeviceName[]

const command = new Command('npm run bench -- devices')
  .description(
    'Trains in one tab on the software adapter and on the device cpu with one thread and two, in turns, and compares the times of their steps.',
  )
  .option('--browsers <names>', browserKinds.join(','), someOf(browserKinds), [...browserKinds])
  .option('--models <names>', modelNames.join(','), someOf(modelNames), modelNames)
  .option('--batch-sizes <numbers>', batchSizes.join(','), someOf(batchSizes), batchSizes)
  .option('--rounds <count>', 'runs on each device', countOf(3), 3)
  .addOption(
    new Option('--ops [pattern]', 'steps of single ops whose name has this, instead of models')
      .argParser((text) => new RegExp(text, 'i'))
      .preset('.'),
  )
  .addOption(jsonOption())
  .addOption(saveOption())

/** units: ms a step, by round. */
interface Line extends Record<DeviceName, number[]> {
  browser: BrowserName
  /** What a step is. */
  step: string
  /** Of ops: up to the end of the first step, by device. */
  firstMs?: Partial<Record<DeviceName, number>>
  error?: string
}

export async function benchDevices(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  note('building the pages')
  const served = flags.ops
    ? await servePages(opsPage)
    : await serve({ root: await ensureBuilt({ log: note }), port: 0 })
  const toClose = [() => served.close()]
  const lines = await closeAfter(
    async () => void (await Promise.all(toClose.map((close) => close()))),
    async () => {
      const lines: Line[] = []
      for (const name of flags.browsers) {
        const start = await browserStarter(chosenBrowser(name))
        const browser = await start('software', { isHeaded: false, timesKernels: false }, note)
        toClose.push(() => browser.close())
        const time = flags.ops ? timeOps : timeModels
        lines.push(...(await time(name, browser, served.localUrl, flags)))
      }
      return lines
    },
  )
  const machine = machineLine('before the run', load)
  const what = flags.ops
    ? 'Steps of single ops: the mean of the squared result, its gradient, and SGD; in turns, in one worker'
    : 'One tab, built-in training, in turns; the median step of each run, then of the runs'
  const heading = `${today()}, **software adapters** (SwiftShader in Chromium, lavapipe in Firefox) and the device \`cpu\`; ${machine}. ${what}.`
  const title = flags.ops ? 'devices-ops' : 'devices'
  const report = `${heading}\n\n${tableOf(lines)}\n`
  await publish({ report, rows: lines, nameParts: [title], title }, flags)
}

const noTimes = (): Record<DeviceName, number[]> => ({ adapter: [], oneThread: [], twoThreads: [] })

function tableOf(lines: readonly Line[]): string {
  const hasFirst = lines.some(({ firstMs }) => firstMs)
  const rows = lines.map((line) => {
    if (line.error) return [line.browser, line.step, line.error]
    const ratio = (name: DeviceName) => {
      const ratios = pairRatios(line[name], line.adapter)
      const [min, max] = spread(ratios).map((one) => one.toFixed(2))
      return `**${median(ratios).toFixed(2)}** (${min} to ${max})`
    }
    const times = deviceNames.map((name) => median(line[name]).toFixed(1))
    const first = hasFirst ? [line.firstMs?.adapter?.toFixed(0) ?? ''] : []
    return [line.browser, line.step, ...times, ...first, ratio('oneThread'), ratio('twoThreads')]
  })
  const heads = ['adapter, ms', 'cpu, 1 thread, ms', '2 threads, ms']
  const first = hasFirst ? ['compile and first step on the adapter, ms'] : []
  const ratios = ['1 thread / adapter', '2 threads / adapter']
  return markdownTable(['browser', 'step', ...heads, ...first, ...ratios], rows)
}

/** In turns, which begin at either end. */
const inTurns = (round: number) => (round % 2 === 0 ? deviceNames : deviceNames.toReversed())

async function timeModels(
  name: BrowserName,
  browser: TabBrowser,
  url: string,
  { models: wanted, batchSizes: sizes, rounds }: Flags,
): Promise<Line[]> {
  const lines: Line[] = []
  for (const model of wanted)
    for (const batchSize of sizes) {
      const line: Line = { browser: name, step: `${model}, batch of ${batchSize}`, ...noTimes() }
      const { steps, skipped } = runs[batchSize]
      const config = parseTrainConfig({ ...models[model], batchSize, steps, elastic: false })
      for (let round = 0; round < rounds; round++) {
        note(`${name}, ${line.step}, round ${round + 1} of ${rounds}`)
        for (const device of inTurns(round)) {
          const switches = devices[device]
          line[device].push(await stepMs(browser, { url, config, tabs: 1, skipped, switches }))
        }
      }
      lines.push(line)
    }
  return lines
}

const opsPage = 'bench/devices/page.html'
/** Of float32 sums in another order; a wrong kernel is off by far more. */
const lossTolerance = 1e-3

async function timeOps(
  name: BrowserName,
  browser: TabBrowser,
  url: string,
  { ops: pattern, rounds }: Flags,
): Promise<Line[]> {
  const open = async () => {
    const tab = await browser.openTab({ origin: new URL(url).origin })
    await tab.load(`${url}${opsPage}`, 60_000)
    const start = async () => {
      while (!window.benchOps) await new Promise((resolve) => setTimeout(resolve, 50))
      return window.benchOps.open()
    }
    return { tab, names: await tab.evaluate(start, null) }
  }
  const { tab, names } = await open()
  await tab.close()
  const lines: Line[] = []
  for (const step of names.filter((one) => pattern!.test(one))) {
    const line: Line = { browser: name, step, ...noTimes(), firstMs: {} }
    lines.push(line)
    note(`${name}, ${step}, ${rounds} rounds`)
    // A device that has failed once fails again.
    const { tab } = await open()
    try {
      const losses: number[] = []
      for (const device of deviceNames) {
        const load = ([op, on]: readonly [string, DeviceName]) => window.benchOps.load(op, on)
        const { firstMs, loss } = await tab.evaluate(load, [step, device] as const)
        line.firstMs![device] = firstMs
        losses.push(loss)
      }
      const [expected] = losses
      if (!losses.every((loss) => Math.abs(loss / expected - 1) < lossTolerance))
        throw new Error(`the losses differ: ${losses.join(', ')}`)
      for (let round = 0; round < rounds; round++)
        for (const device of inTurns(round))
          line[device].push(await tab.evaluate((on) => window.benchOps.time(on), device))
    } catch (thrown) {
      line.error = messageOf(thrown).split('\n')[0]
    }
    await tab.close()
  }
  return lines
}
