import { Command, Option } from 'commander'
import type { AdapterChoice } from '../node/chromium.ts'
import { messageOf } from '../src/util/errors.ts'
import { benchChurn } from './churn.ts'
import { benchCollectives } from './collectives.ts'
import { closeAfter } from './command/close-after.ts'
import { adapterOption, countOf, jsonOption, saveOption } from './command/flags.ts'
import { machineLine, today } from './command/machine.ts'
import { note } from './command/note.ts'
import { publish } from './command/results.ts'
import { stepNames } from './compute/task.ts'
import { openCompute } from './compute.ts'
import { benchDemos } from './demos.ts'
import { benchDevices } from './devices.ts'
import { benchExact } from './exact.ts'
import { firstStepRows } from './first-step.ts'
import { benchHidden } from './hidden.ts'
import { type Host, openHost } from './host.ts'
import { benchLanes } from './lanes.ts'
import { benchMachines } from './machines.ts'
import { matmulRows } from './matmul.ts'
import { benchOverlap } from './overlap.ts'
import { benchPage } from './page.ts'
import { benchProducts } from './products.ts'
import { benchRecovery } from './recovery.ts'
import { ringRows } from './ring.ts'
import type { Place, Row } from './row.ts'
import { benchSplit } from './split.ts'
import { benchStart } from './start.ts'
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
    'Times training steps, matmuls and the ring against other libraries and raw channels, in turns.',
  )
  .addOption(new Option('--only <part>', 'run only this part').choices(parts))
  .option(
    '--rounds <count>',
    `interleaved rounds, at least ${fewestRounds}`,
    countOf(fewestRounds),
    9,
  )
  .addOption(adapterOption())
  .addHelpText(
    'after',
    '\nnpm run bench -- collectives --help: only collectives between tabs, by size, backend and algorithm.\nnpm run bench -- lanes --help: several connections against one, on links with long round trips.\nnpm run bench -- machines --help: hierarchical sums between machines that are far apart.\nnpm run bench -- hidden --help: training in hidden tabs.\nnpm run bench -- overlap --help: a step with and without overlap.\nnpm run bench -- demos --help: results of the demos on the training page.\nnpm run bench -- page --help: main-thread time of the training page.\nnpm run bench -- start --help: time from pressing Start to the first step.\nnpm run bench -- split --help: a model on one device, on several, and pipelined.\nnpm run bench -- exact --help: what the setting exact costs.\nnpm run bench -- devices --help: the device cpu beside software adapters.\nnpm run bench -- products --help: products of the device cpu beside a bare loop and NumPy.\nnpm run bench -- churn --help: training while tabs are lost.\nnpm run bench -- recovery --help: how long a lost tab stops the others.',
  )
  .addOption(jsonOption())
  .addOption(saveOption())

async function bench(flags: Flags): Promise<boolean> {
  const wants = (part: Part) => flags.only === undefined || flags.only === part
  const host = await openHost(flags.adapter, note)
  return closeAfter(
    () => host.close(),
    async () => {
      const { rows, place } = await measure(host, wants, flags)
      const report = formatReport(rows, place)
      const part = flags.only ? [flags.only] : []
      await publish({ report, rows, nameParts: [place.adapter, place.browser, ...part] }, flags)
      return rows.every(({ error }) => error === undefined)
    },
  )
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
    date: today(),
    machine: machineLine('before the run'),
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

let isComplete = false
try {
  const [part, ...rest] = process.argv.slice(2)
  const own: Readonly<Record<string, (argv: readonly string[]) => Promise<void>>> = {
    collectives: benchCollectives,
    lanes: benchLanes,
    machines: benchMachines,
    hidden: benchHidden,
    overlap: benchOverlap,
    demos: benchDemos,
    page: benchPage,
    start: benchStart,
    split: benchSplit,
    exact: benchExact,
    devices: benchDevices,
    products: benchProducts,
    churn: benchChurn,
    recovery: benchRecovery,
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
