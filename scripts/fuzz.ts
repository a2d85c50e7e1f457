import { resolve } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { Argument, Command, InvalidArgumentError } from 'commander'
import { runnerImport } from 'vite'
import { Interrupt } from '../node/interrupt.ts'
import { runCommand } from '../node/run-command.ts'
import { messageOf } from '../src/util/errors.ts'
import { Trace } from '../tests/support/simulation/trace.ts'

// Readers of checkpoints import kernels, and those their shaders as text, which is Vite's doing, not Node's.
const { module } = await runnerImport<typeof import('../tests/support/fuzz/targets.ts')>(
  resolve(import.meta.dirname, '../tests/support/fuzz/targets.ts'),
)
const { targets, checkTarget } = module
type Target = (typeof targets)[number]

/** Between lines of progress. units: ms. */
const progressMs = 5000

const whole = (text: string) => {
  const number = Number(text)
  if (Number.isInteger(number) && number >= 0) return number
  throw new InvalidArgumentError('Expected a whole number from 0.')
}

const minutes = (text: string) => {
  const number = Number(text)
  if (number > 0 && Number.isFinite(number)) return number
  throw new InvalidArgumentError('Expected a number of minutes above 0.')
}

const command = new Command('npm run fuzz --')
  .description(
    `Attacks what takes bytes from strangers, as a seed says:\n${targets.map(({ name, about }) => `  ${name.padEnd(10)} ${about}`).join('\n')}\nExits with 1 where something breaks what it promises, and prints the command that shows it again.`,
  )
  .addArgument(
    new Argument('[target]', 'which; default: all').choices(targets.map(({ name }) => name)),
  )
  .option('--minutes <number>', 'how long, all targets together', minutes, 1)
  .option('--first <number>', 'the first seed', whole, 1)
  .option('--seed <number>', 'this seed of the target alone, with all that is fed in', whole)

/** What the seeds of one target came to so far. */
class Sums {
  readonly #name: string
  readonly #counts: Record<string, number> = {}
  readonly #began = performance.now()
  #printedMs = this.#began
  #seeds = 0
  failures = 0

  constructor(name: string) {
    this.#name = name
  }

  add(counts: Readonly<Record<string, number>>): void {
    this.#seeds++
    for (const [kind, count] of Object.entries(counts))
      this.#counts[kind] = (this.#counts[kind] ?? 0) + count
  }

  fail(text: string): void {
    this.#seeds++
    this.failures++
    process.stdout.write(`${this.#name}: ${text}\n`)
  }

  /** On a terminal the seed under way is shown: one that hangs can be named. */
  progress(seed: number): void {
    const now = performance.now()
    if (process.stderr.isTTY) process.stderr.write(`\r${this.#name}: seed ${seed} \r`)
    if (now - this.#printedMs < progressMs) return
    this.#printedMs = now
    process.stderr.write(`fuzz: ${this.#line}\n`)
  }

  print(): void {
    process.stdout.write(`${this.#line}\n`)
  }

  get #line(): string {
    const seconds = ((performance.now() - this.#began) / 1000).toFixed(0)
    const counts = Object.entries(this.#counts).map(([kind, count]) => `${count} ${kind}`)
    return `${this.#name}: ${this.#seeds} seeds in ${seconds} s, ${this.failures} failed; ${counts.join(', ')}`
  }
}

async function showSeed({ name, run }: Target, seed: number): Promise<number> {
  const trace = new Trace()
  const { violations } = await run(seed, trace)
  process.stdout.write(`${trace.lines.join('\n')}\n`)
  process.stdout.write(`${name}, seed ${seed}: ${violations.length} violations\n`)
  for (const violation of violations) process.stdout.write(`  ${violation}\n`)
  return violations.length > 0 ? 1 : 0
}

/** Runs seeds for so long. Returns how many failed. */
async function attack(
  target: Target,
  { first, forMs }: { first: number; forMs: number },
  signal: AbortSignal,
): Promise<number> {
  const sums = new Sums(target.name)
  const endMs = performance.now() + forMs
  try {
    for (let seed = first; performance.now() < endMs; seed++) {
      // A Ctrl-C, and what was thrown where nobody catches it, come between two tasks.
      await setImmediate()
      signal.throwIfAborted()
      sums.progress(seed)
      try {
        sums.add((await checkTarget(target, seed)).counts)
      } catch (thrown) {
        sums.fail(messageOf(thrown))
      }
      if (signal.aborted && !(signal.reason instanceof Interrupt))
        sums.fail(`uncaught in seed ${seed}: npm run fuzz -- ${target.name} --seed ${seed}`)
    }
  } finally {
    sums.print()
  }
  return sums.failures
}

async function main(_: readonly string[], signal: AbortSignal): Promise<number> {
  command.parse()
  const [name] = command.args
  const { minutes, first, seed } = command.opts()
  const chosen = name === undefined ? targets : targets.filter((target) => target.name === name)
  if (seed !== undefined) {
    if (name === undefined)
      command.error(`error: --seed needs a target: ${targets.map((one) => one.name).join(', ')}`)
    return showSeed(chosen[0]!, seed)
  }
  const forMs = (minutes * 60_000) / chosen.length
  let failures = 0
  for (const target of chosen) failures += await attack(target, { first, forMs }, signal)
  return failures > 0 ? 1 : 0
}

await runCommand('fuzz', main, {
  interrupted: () => 'the sums above are of the seeds until then',
  failed: messageOf,
})
