import { mkdir, writeFile } from 'node:fs/promises'
import { cpus, loadavg } from 'node:os'
import { join } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import type { AdapterChoice } from '../node/chromium.ts'
import { messageOf } from '../src/util/errors.ts'
import { benchCollectives } from './collectives.ts'
import { stepNames } from './compute/task.ts'
import { openCompute } from './compute.ts'
import { firstStepRows } from './first-step.ts'
import { benchHidden } from './hidden.ts'
import { type Host, openHost } from './host.ts'
import { benchLanes } from './lanes.ts'
import { benchMachines } from './machines.ts'
import { matmulRows } from './matmul.ts'
import { benchOverlap } from './overlap.ts'
import { ringRows } from './ring.ts'
import type { Place, Row } from './row.ts'
import { stepRows } from './step.ts'
import { formatReport } from './table.ts'

/** `npm run bench -- …`; how it measures is in bench/README.md. */

const parts = [...stepNames, 'first', 'matmul', 'ring'] as const
type Part = (typeof parts)[number]

interface Flags {
  only?: Part
  rounds: number
  adapter: AdapterChoice
  json: boolean
  save: boolean
}

const fewestRounds = 7

const command = new Command('npm run bench --')
  .description(
    'Times training steps, matmuls and the ring beside other libraries and raw channels, in turns.',
  )
  .addOption(new Option('--only <part>', 'one part alone').choices(parts))
  .option(
    '--rounds <count>',
    `interleaved rounds, ${fewestRounds} at least`,
    (text) => {
      const count = Number(text)
      if (!Number.isSafeInteger(count) || count < fewestRounds)
        throw new InvalidArgumentError(`Expected a whole number of at least ${fewestRounds}.`)
      return count
    },
    9,
  )
  .addOption(
    new Option('--adapter <which>', 'the GPU where there is one, or the CPU stand-in')
      .choices(['auto', 'software'] satisfies AdapterChoice[])
      .default('auto'),
  )
  .addHelpText(
    'after',
    '\nnpm run bench -- collectives --help: collectives between tabs alone, by size, backend and algorithm.\nnpm run bench -- lanes --help: several connections over a long way, beside one.\nnpm run bench -- machines --help: sums that go inside a machine first, between machines that are far from each other.\nnpm run bench -- hidden --help: training in hidden tabs.\nnpm run bench -- overlap --help: a step with and without overlap.',
  )
  .option('--json', 'one JSON object a row on standard output', false)
  .option('--save', 'also write the table to bench/results/', false)

const note = (line: string) => process.stderr.write(`bench: ${line}\n`)

async function bench(flags: Flags): Promise<boolean> {
  const wants = (part: Part) => flags.only === undefined || flags.only === part
  const host = await openHost(flags.adapter, note)
  const onInterrupt = () => {
    host.close().finally(() => process.exit(130))
  }
  process.once('SIGINT', onInterrupt)
  process.once('SIGTERM', onInterrupt)
  try {
    const { rows, place } = await measure(host, wants, flags)
    const report = formatReport(rows, place)
    if (flags.json) for (const row of rows) process.stdout.write(`${JSON.stringify(row)}\n`)
    else process.stdout.write(report)
    if (flags.save) note(`saved ${await save(report, rows, place, flags.only)}`)
    return rows.every(({ error }) => error === undefined)
  } finally {
    process.off('SIGINT', onInterrupt)
    process.off('SIGTERM', onInterrupt)
    await host.close()
  }
}

async function measure(
  host: Host,
  wants: (part: Part) => boolean,
  { rounds }: Flags,
): Promise<{ rows: Row[]; place: Place }> {
  const compute = await openCompute(host)
  const place: Place = {
    adapter: compute.adapter,
    software: compute.software,
    browser: `Chromium ${host.browser.version()}`,
    date: new Date().toISOString().slice(0, 10),
    machine: `${cpus()[0]?.model.trim() || 'unknown CPU'}, ${compute.cores} cores, load average before the run ${loadavg()[0].toFixed(1)}`,
  }
  const rows: Row[] = []
  for (const step of stepNames) {
    if (wants(step)) rows.push(...(await stepRows(compute, step, place, rounds, note)))
  }
  if (wants('matmul')) rows.push(...(await matmulRows(compute, place, rounds, note)))
  // What follows has the machine for itself.
  await compute.page.close()
  for (const step of wants('first') ? stepNames : []) {
    rows.push(...(await firstStepRows(host, step, place, note)))
  }
  if (wants('ring')) rows.push(...(await ringRows(host, place, rounds, note)))
  return { rows, place }
}

/** Writes the table and the rows behind it; returns the file, which for one part alone is one of its own. */
async function save(
  report: string,
  rows: readonly Row[],
  place: Place,
  only: Part | undefined,
): Promise<string> {
  const folder = join(import.meta.dirname, 'results')
  await mkdir(folder, { recursive: true })
  const plain = (text: string) => text.toLowerCase().replace(/[^a-z0-9.]+/g, '-')
  const part = only ? `-${only}` : ''
  const name = `${place.date}-${plain(place.adapter)}-${plain(place.browser)}${part}.md`
  const json = rows.map((row) => JSON.stringify(row)).join('\n')
  await writeFile(join(folder, name), `# ${place.date}\n\n${report}\n\`\`\`json\n${json}\n\`\`\`\n`)
  return join(folder, name)
}

let isComplete = false
try {
  const [part, ...rest] = process.argv.slice(2)
  const own: Readonly<Record<string, (argv: readonly string[]) => Promise<void>>> = {
    collectives: benchCollectives,
    lanes: benchLanes,
    machines: benchMachines,
    hidden: benchHidden,
    overlap: benchOverlap,
  }
  if (part !== undefined && part in own) {
    await own[part](rest)
    isComplete = true
  } else {
    isComplete = await bench(command.parse().opts<Flags>())
  }
} catch (thrown) {
  note(messageOf(thrown).split('\n')[0])
}
const exitCode = isComplete ? 0 : 1
process.stdout.write('', () => process.exit(exitCode))
