import { Command } from 'commander'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'
import { markdownTable } from '../src/util/markdown.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, jsonOption, saveOption, someOf } from './command/flags.ts'
import { loadNow, machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { type Finished, finish } from './demos/finish.ts'
import { type DemoTable, demoTables, filesAt, needsFiles } from './demos/tables.ts'

/** `npm run bench -- demos`: the tables of the demos' READMEs, as the page itself reports its runs. */

const demos = [...new Set(demoTables.map(({ demo }) => demo))]

interface Flags {
  demo: DemoTable['demo'][]
  data?: string
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const command = new Command('npm run bench -- demos')
  .description(
    'Trains each demo to the end on the training page, with the settings in the tables of its README, and reads the result from the page.',
  )
  .option('--demo <names>', demos.join(','), someOf(demos), [...demos])
  .option(
    '--data <folder>',
    'folder with the four IDX files of MNIST; without it their rows are omitted',
  )
  .addOption(adapterOption())
  .addOption(jsonOption())
  .addOption(saveOption())

interface Line extends Finished {
  demo: string
  row: string
  column: string
}

export async function benchDemos(argv: readonly string[]): Promise<void> {
  const flags = command.parse(argv, { from: 'user' }).opts<Flags>()
  const load = loadNow()
  const mounts = flags.data === undefined ? undefined : { [filesAt]: flags.data }
  const options = { adapter: flags.adapter, note, mounts }
  const { served, browser, close } = await openTrainingHost(options)
  const chosen = demoTables
    .filter(({ demo }) => flags.demo.includes(demo))
    .map((table) => ({
      ...table,
      rows: table.rows.filter((row) => flags.data !== undefined || !needsFiles(row)),
    }))
  const { tables, browserVersion } = await closeAfter(close, async () => {
    const tables: { table: DemoTable; lines: Line[] }[] = []
    for (const table of chosen) {
      const lines: Line[] = []
      for (const row of table.rows)
        for (const column of table.columns) {
          // At full speed, whatever pace the page begins with.
          const settings = {
            demo: table.demo,
            maxStepsPerSec: 0,
            ...row.query,
            ...column.query,
          }
          const query = new URLSearchParams(
            Object.entries(settings).map(([key, value]) => [key, String(value)]),
          ).toString()
          const run = await finish(browser, served.localUrl, query)
          note(`${query}: ${run.value} after ${run.time}`)
          lines.push({ demo: table.demo, row: row.words, column: column.words, ...run })
        }
      tables.push({ table, lines })
    }
    return { tables, browserVersion: browser.version() }
  })
  const lines = tables.flatMap((one) => one.lines)
  const adapter = lines[0]?.adapter ?? ''
  const software = /software/.test(adapter) ? '; **software adapter**' : ''
  const heading = `${today()}, Chromium ${browserVersion}, ${machineLine('before the run', load)}, adapter ${adapter}${software}. Results of each run from the page: the metric on held-out samples, and the time of training including its tests.`
  const text = tables.map(
    ({ table, lines }) =>
      `## ${table.demo}: ${lines[0].metric}\n\n${markdownTable(
        [table.head, ...table.columns.map(({ words }) => words)],
        table.rows.map(({ words }) => [
          words,
          ...lines.filter(({ row }) => row === words).map(({ value, time }) => `${value}, ${time}`),
        ]),
      )}\n`,
  )
  await publish(
    {
      report: `${heading}\n\n${text.join('\n')}`,
      rows: lines,
      nameParts: ['chromium', browserVersion, 'demos'],
      title: "the demos' tables",
    },
    flags,
  )
}
