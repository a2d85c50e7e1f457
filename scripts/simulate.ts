import { Argument, Command, InvalidArgumentError, Option } from 'commander'
import { rankRange } from '../node/rank-range.ts'
import { runCommand } from '../node/run-command.ts'
import { membersPerRoom } from '../src/peer/room/edges.ts'
import { messageOf } from '../src/util/errors.ts'
import {
  cellOf,
  checkElastic,
  injectCell,
} from '../tests/support/simulation/elastic/check-elastic.ts'
import {
  type ElasticOutcome,
  simulateElastic,
} from '../tests/support/simulation/elastic/elastic.ts'
import { liars } from '../tests/support/simulation/elastic/liar.ts'
import {
  type Cell,
  cells,
  drawElastic,
  faults,
  type WorldKind,
} from '../tests/support/simulation/elastic/plan.ts'
import { around } from '../tests/support/simulation/replay.ts'
import { Trace } from '../tests/support/simulation/trace.ts'

/** Between lines of progress. units: ms. */
const progressMs = 5000

/** Number of seeds in which the fault of each cell is injected. */
const injections = 20

const whole = (min: number) => (text: string) => {
  const number = Number(text)
  if (Number.isInteger(number) && number >= min) return number
  throw new InvalidArgumentError(`Expected a whole number from ${min}.`)
}

const range = (text: string): readonly [number, number] => {
  const { min, max } = rankRange(membersPerRoom)(text)
  if (min > 1) return [min, max]
  throw new InvalidArgumentError('Expected 2 members or more.')
}

const cellFrom = (text: string): Cell => {
  const cell = cellOf(text)
  if (cell) return cell
  throw new InvalidArgumentError('Expected fault, moment and role, as in "crash, gather, senior".')
}

const command = new Command('npm run simulate --')
  .description(
    'Runs the protocol in simulated worlds: a seed draws members, links and what befalls them. Exits with 1 where a world breaks what the protocol promises, and prints the command that runs its seed again.',
  )
  .addArgument(new Argument('<worlds>', 'which').choices(['elastic']))
  .option('--seeds <count>', 'how many', whole(1), 1000)
  .option('--first <number>', 'the first seed', whole(0), 1)
  .option('--seed <number>', 'this seed alone, with all that happens in it', whole(0))
  .option('--members <min:max>', 'how many members begin a run', range, [2, 6] as const)
  .option('--cell <names>', 'what strikes first: fault, moment and role', cellFrom)
  .addOption(
    new Option(
      '--liar <role>',
      'a tab that sends any message with any fields, or a server that says anything of any member',
    ).choices(liars),
  )
  .option(
    '--cells',
    `each fault at each moment in each role, until it has struck in ${injections} seeds`,
  )

/** What the seeds came to so far. */
class Sums {
  readonly #injected = new Map<string, number>(faults.map((kind) => [kind, 0]))
  readonly #began = performance.now()
  #printedMs = this.#began
  #seeds = 0
  #rosters = 0
  #echoes = 0
  #persons = 0
  #longestMs = 0
  failures = 0

  add({ injected, rosters, echoes, persons, longestMs }: ElasticOutcome): void {
    this.#seeds++
    for (const { kind } of injected) this.#injected.set(kind, this.#injected.get(kind)! + 1)
    this.#rosters += rosters
    this.#echoes += echoes
    this.#persons += persons
    this.#longestMs = Math.max(this.#longestMs, longestMs)
  }

  fail(thrown: unknown): void {
    this.#seeds++
    this.failures++
    process.stdout.write(`${messageOf(thrown)}\n`)
  }

  /** Now and then, `where`: as in "of 1000". */
  progress(where: string): void {
    const now = performance.now()
    if (now - this.#printedMs < progressMs) return
    this.#printedMs = now
    const seconds = Math.round((now - this.#began) / 1000)
    process.stderr.write(
      `simulate: ${this.#seeds} seeds ${where}, ${this.#all} faults struck, ${this.failures} seeds failed, ${seconds} s\n`,
    )
  }

  get #all(): number {
    return [...this.#injected.values()].reduce((a, b) => a + b)
  }

  print(): void {
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(1)
    const lines = [
      `${this.#seeds} seeds in ${seconds} s, ${this.failures} failed`,
      `${this.#all} faults struck: ${[...this.#injected].map(([kind, count]) => `${kind} ${count}`).join(', ')}`,
      `${this.#rosters} rosters entered, ${this.#persons} decisions of a person, ${this.#echoes} old messages sent again`,
      `at most ${this.#longestMs / 1000} s without a step while enough members were connected`,
    ]
    process.stdout.write(`${lines.join('\n')}\n`)
  }
}

async function showSeed(seed: number, kind: WorldKind): Promise<number> {
  const trace = new Trace()
  const { violations, hash, endMs } = await simulateElastic(drawElastic(seed, kind), trace)
  process.stdout.write(`${around(trace)}\n`)
  for (const violation of violations) process.stdout.write(`VIOLATION ${violation}\n`)
  process.stdout.write(
    `seed ${seed}: ${violations.length} violations, over after ${(endMs / 1000).toFixed(1)} s, hash ${hash ?? 'of unlike devices'}\n`,
  )
  return violations.length > 0 ? 1 : 0
}

async function main(_: readonly string[], signal: AbortSignal): Promise<number> {
  command.parse()
  const { seeds, first, seed, members, cell, liar, cells: inCells } = command.opts()
  const kind: WorldKind = { cell, members, liar }
  if (seed !== undefined) return showSeed(seed, kind)
  const sums = new Sums()
  const add = (outcome: ElasticOutcome) => {
    sums.add(outcome)
    signal.throwIfAborted()
  }
  const attempt = async (run: () => Promise<void>) => {
    signal.throwIfAborted()
    await run().catch((thrown) => {
      signal.throwIfAborted()
      sums.fail(thrown)
    })
  }
  try {
    if (inCells)
      for (const [at, one] of cells.entries()) {
        await attempt(() => injectCell(one, injections, first, add))
        sums.progress(`in ${at + 1} of ${cells.length} cells`)
      }
    else
      for (let at = 0; at < seeds; at++) {
        await attempt(async () => add(await checkElastic(first + at, kind)))
        sums.progress(`of ${seeds}`)
      }
  } finally {
    sums.print()
  }
  return sums.failures > 0 ? 1 : 0
}

await runCommand('simulate', main, {
  interrupted: () => 'the sums above are of the seeds until then',
  failed: messageOf,
})
