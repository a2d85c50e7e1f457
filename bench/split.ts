import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Command, Option } from 'commander'
import type { AdapterChoice } from '../node/chromium.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { openHost } from './host.ts'
import { barsAsSvg } from './split/plot.ts'
import { barsOf, formatReport, nameOf } from './split/report.ts'
import type { Split, SplitFacts, SplitTask, SplitTimes } from './split/task.ts'

/**
 * `npm run bench -- split`: the experiment of PyTorch's model-parallel tutorial: a step on one device, with its layers on two, and pipelined in
 * micro-batches of several sizes.
 */

interface Flags extends SplitTask {
  sizes: number[]
  repeats: number
  waiting: boolean
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const warmups = 2
const tutorialSizes = [1, 3, 5, 8, 10, 12, 20, 40, 60]

const command = new Command('npm run bench -- split')
  .description(
    'Times a training step on one device, with its layers on several, and pipelined in micro-batches of several sizes. Logical devices share one adapter, so measured times show costs, not speed-up; the column of simulated devices shows what a schedule would give.',
  )
  .addOption(
    new Option(
      '--model <name>',
      'cnn: small; resnet50: the model of the tutorial, slow without a GPU',
    )
      .choices(['cnn', 'resnet50'])
      .default('cnn'),
  )
  .option('--batch <samples>', 'samples of a step', countOf(1), 120)
  .option('--stages <count>', 'devices', countOf(2), 2)
  .option(
    '--sizes <list>',
    'samples of a micro-batch, each of which must divide the batch',
    (text) => text.split(',').map(countOf(1)),
    tutorialSizes,
  )
  .option('--repeats <count>', 'timed steps of each', countOf(2), 10)
  .option('--waiting', 'each size also with overlapsSends: false', false)
  .addOption(adapterOption())
  .addOption(jsonOption('the times as JSON objects'))
  .addOption(saveOption())

export async function benchSplit(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const host = await openHost(flags.adapter, note, ['bench/split/page.html'])
  const { browser, url } = host
  await closeAfter(
    () => host.close(),
    async () => {
      const page = await browser.newPage()
      await page.goto(`${url}split/page.html`)
      await page.waitForFunction(() => 'benchSplit' in window)
      const { model, batch, stages, repeats } = flags
      const device = await page.evaluate((task) => window.benchSplit.open(task), {
        model,
        batch,
        stages,
      })
      const waiting = flags.sizes.map((size): Split => `${size} waiting`)
      const splits: Split[] = ['one', 'layers', ...flags.sizes, ...(flags.waiting ? waiting : [])]
      const facts: SplitFacts[] = []
      for (const split of splits) {
        note(`compiling: ${nameOf(split)}`)
        facts.push(await page.evaluate((given) => window.benchSplit.prepare(given), split))
      }
      const stepMs = new Map<Split, number[]>(splits.map((split) => [split, []]))
      for (let round = -warmups; round < repeats; round++) {
        note(round < 0 ? 'warming up' : `round ${round + 1} of ${repeats}`)
        // Each round begins with another one.
        const first = (round + warmups) % splits.length
        for (const split of [...splits.slice(first), ...splits.slice(0, first)]) {
          const ms = await page.evaluate((given) => window.benchSplit.run(given), split)
          if (round >= 0) stepMs.get(split)!.push(ms)
        }
      }
      const times = facts.map((one): SplitTimes => ({ ...one, stepMs: stepMs.get(one.split)! }))
      note('timing the layers')
      const shares = await page.evaluate(() => window.benchSplit.stageShares())
      const where = `${today()}, Chromium ${browser.version()}, ${device}, ${machineLine('before the run', load)}`
      const report = formatReport(flags, times, shares, where)
      const rows = times.map(({ tasks: _, ...row }) => row)
      const nameParts = ['chromium', browser.version(), 'split', model]
      await publish({ report, rows, nameParts, title: 'split' }, flags)
      if (!flags.save) return
      const file = join(import.meta.dirname, 'results', `${today()}-split-${model}.svg`)
      await writeFile(file, barsAsSvg('Step time by micro-batch, ms', barsOf(times)))
      note(`saved ${file}`)
    },
  )
}
