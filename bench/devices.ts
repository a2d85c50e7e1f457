import { Command } from 'commander'
import { parseTrainConfig } from '../demos/experiments.ts'
import { browserKinds, chosenBrowser } from '../node/browser-choice.ts'
import { ensureBuilt } from '../node/build.ts'
import { browserStarter } from '../node/open-browser.ts'
import { serve } from '../node/serve.ts'
import type { TabBrowser } from '../node/tab.ts'
import { markdownTable } from '../src/util/markdown.ts'
import type { SwitchInputs } from '../src/util/switches.ts'
import { closeAfter } from './command/close-after.ts'
import { countOf, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
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
  .addOption(jsonOption())
  .addOption(saveOption())

/** units: ms a step, by round. */
interface Line extends Record<DeviceName, number[]> {
  browser: BrowserName
  model: string
  batchSize: BatchSize
}

export async function benchDevices(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const served = await serve({ root: await ensureBuilt({ log: note }), port: 0 })
  const toClose = [() => served.close()]
  const lines = await closeAfter(
    async () => void (await Promise.all(toClose.map((close) => close()))),
    async () => {
      const lines: Line[] = []
      for (const name of flags.browsers) {
        const start = await browserStarter(chosenBrowser(name))
        const browser = await start('software', { isHeaded: false, timesKernels: false }, note)
        toClose.push(() => browser.close())
        for (const model of flags.models)
          for (const batchSize of flags.batchSizes) {
            const line = { browser: name, model, batchSize, ...noTimes() }
            await timeDevices(browser, served.localUrl, line, flags.rounds)
            lines.push(line)
          }
      }
      return lines
    },
  )
  const machine = machineLine('before the run', load)
  const heading = `${today()}, **software adapters** (SwiftShader in Chromium, lavapipe in Firefox) and the device \`cpu\`; ${machine}. One tab, built-in training, in turns; the median step of each run, then of the runs.`
  const title = 'devices'
  const report = `${heading}\n\n${tableOf(lines)}\n`
  await publish({ report, rows: lines, nameParts: [title], title }, flags)
}

const noTimes = (): Record<DeviceName, number[]> => ({ adapter: [], oneThread: [], twoThreads: [] })

function tableOf(lines: readonly Line[]): string {
  const rows = lines.map((line) => {
    const ratio = (name: DeviceName) => {
      const ratios = pairRatios(line[name], line.adapter)
      const [min, max] = spread(ratios).map((one) => one.toFixed(2))
      return `**${median(ratios).toFixed(2)}** (${min} to ${max})`
    }
    const times = deviceNames.map((name) => median(line[name]).toFixed(1))
    const sizes = [line.browser, line.model, String(line.batchSize)]
    return [...sizes, ...times, ratio('oneThread'), ratio('twoThreads')]
  })
  const heads = ['adapter, ms', 'cpu, 1 thread, ms', '2 threads, ms']
  const ratios = ['1 thread / adapter', '2 threads / adapter']
  return markdownTable(['browser', 'model', 'batch size', ...heads, ...ratios], rows)
}

async function timeDevices(
  browser: TabBrowser,
  url: string,
  line: Line,
  rounds: number,
): Promise<void> {
  const { model, batchSize } = line
  const { steps, skipped } = runs[batchSize]
  const config = parseTrainConfig({ ...models[model], batchSize, steps, elastic: false })
  for (let round = 0; round < rounds; round++) {
    note(`${line.browser}, ${model}, batch ${batchSize}, round ${round + 1} of ${rounds}`)
    for (const name of round % 2 === 0 ? deviceNames : deviceNames.toReversed()) {
      const switches = devices[name]
      line[name].push(await stepMs(browser, { url, config, tabs: 1, skipped, switches }))
    }
  }
}
