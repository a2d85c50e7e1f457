import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Command, Option } from 'commander'
import { parseTrainConfig } from '../demos/experiments.ts'
import { CheckpointFolder } from '../node/checkpoint-folder.ts'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import type { TrainConfigInput } from '../src/trainer/settings/config.ts'
import { seededRandom } from '../src/util/virtual-env.ts'
import { deathsOf } from './churn/deaths.ts'
import { type Life, live } from './churn/live.ts'
import { barsOf, cellsOf, formatReport, type Row, type WayName, wayNames } from './churn/report.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, atLeast, countOf, jsonOption, saveOption } from './command/flags.ts'
import { adapterWords, loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { modelNames, models } from './models.ts'
import { barsAsSvg } from './split/plot.ts'

/** `npm run bench -- churn`: how many steps a second are left of a run whose tabs are lost and replaced, by mean life of a tab. */

interface Flags {
  lives: number[]
  seconds: number
  rounds: number
  tabs: number
  model: string
  checkpointEvery: number
  seed: number
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- churn')
  .description(
    'Trains in tabs that crash or are closed at random and are replaced at once. Compares three ways: restart (a lost tab ends the run, which starts again from its newest checkpoint), elastic, and elastic with exact. The same deaths are planned in all three. With the defaults it takes about 10 minutes.',
  )
  .option(
    '--lives <list>',
    'mean lives of a tab, in seconds',
    (text) => text.split(',').map(atLeast(0.1)),
    [5, 15, 60],
  )
  .option('--seconds <count>', 'least length of each run, from its first step on', atLeast(1), 40)
  .option('--rounds <count>', 'runs of each way at each mean life', countOf(1), 1)
  .option('--tabs <count>', 'number of tabs', countOf(1), 3)
  .addOption(new Option('--model <name>', 'what is trained').choices(modelNames).default('mlp'))
  .option(
    '--checkpoint-every <steps>',
    "steps between two checkpoints, which are also saved at each epoch's end",
    countOf(1),
    100,
  )
  .option('--seed <number>', 'which tabs are lost, and when', countOf(0), 1)
  .addOption(adapterOption())
  .addOption(jsonOption('the runs as JSON objects'))
  .addOption(saveOption())

const ways: Readonly<Record<WayName, TrainConfigInput>> = {
  restart: { elastic: false },
  elastic: { elastic: true },
  exact: { elastic: true, exact: true },
}

/** More than any run does in its time. */
const steps = 10_000_000

export async function benchChurn(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const { seconds, rounds, tabs, model, checkpointEvery, seed } = flags
  const load = loadNow()
  const folder = await mkdtemp(join(tmpdir(), 'tabring-churn-'))
  const checkpoints = new CheckpointFolder(folder)
  const { writable } = checkpoints
  const host = await openTrainingHost({ adapter: flags.adapter, note, writable })
  const { served, browser } = host
  const close = async () => {
    await host.close()
    await rm(folder, { recursive: true, force: true })
  }
  await closeAfter(close, async () => {
    const adapter = await adapterWords(browser)
    const place = { browser, url: served.localUrl, checkpoints, tabs, seconds }
    const rows = await runAll(place, flags)
    const machine = machineLine('before the run', load)
    const heading = `${today()}, Chromium ${browser.version()}, ${adapter}, ${machine}. ${model} in ${tabs} tabs of one browser, at least ${seconds} s from the first step on, ${rounds} ${rounds === 1 ? 'round' : 'rounds'}, seed ${seed}. Tabs are lost at random, half of them by a crash, and replaced at once; at the same times in each way. Every way saves a checkpoint every ${checkpointEvery} steps and at each epoch's end, and starts again from it when the run ends. Steps count once, and only those that are not lost; "of undisturbed" is the median ratio to the same way without losses in the same round.`
    const cells = cellsOf(rows)
    const report = formatReport(heading, cells)
    const nameParts = ['chromium', browser.version(), 'churn', model]
    await publish({ report, rows, nameParts, title: 'churn' }, flags)
    if (!flags.save) return
    const file = join(import.meta.dirname, 'results', `${today()}-churn-${model}.svg`)
    const title = 'Goodput by mean life of a tab, % of undisturbed'
    await writeFile(file, barsAsSvg(title, barsOf(cells)))
    note(`saved ${file}`)
  })
}

/** All ways at all mean lives, in turns. */
async function runAll(
  place: Omit<Life, 'config' | 'deaths' | 'note'>,
  { lives, rounds, model, checkpointEvery, seed }: Flags,
): Promise<Row[]> {
  const { tabs, seconds } = place
  const rows: Row[] = []
  for (let round = 0; round < rounds; round++) {
    for (const [at, life] of [null, ...lives].entries()) {
      const random = seededRandom(seed + 1000 * round + at)
      const deaths = life === null ? [] : deathsOf(random, tabs, 1000 * life, 1000 * seconds)
      // Each begins with another way.
      const first = (round + at) % wayNames.length
      for (const way of [...wayNames.slice(first), ...wayNames.slice(0, first)]) {
        const words =
          life === null ? 'no loss' : `mean life ${life} s, ${deaths.length} deaths planned`
        const name = `round ${round + 1} of ${rounds}, ${words}, ${way}`
        note(name)
        const config = parseTrainConfig({ ...models[model], ...ways[way], steps, checkpointEvery })
        const says = (line: string) => note(`${name}: ${line}`)
        const lived = await live({ ...place, config, deaths, note: says })
        const rate = (lived.steps / lived.seconds).toFixed(2)
        says(`${rate} steps/s, ${lived.lost} tabs lost, ${lived.starts} starts`)
        rows.push({ way, life, round, ...lived })
      }
    }
  }
  return rows
}
