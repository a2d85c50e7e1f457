import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join, relative } from 'node:path'
import { parseSync } from 'vite'
import { defineConfig } from 'vitest/config'
import { permutation } from '../src/util/random.ts'
import { repository } from '../tests/support/repository.ts'
import type { Syntax } from '../tests/support/syntax.ts'
import config from '../vitest.config.ts'

// Seeded mutants, `npx tsx scripts/mutants.ts [seed] [count per area]`: wrong edits of the code in `areas`, each run against the specs of
// the project `unit` that execute it, cheapest first, until one fails. A first run of all of them notes who executes what: half an hour.
// Verdicts go to test-results/mutants.jsonl, from where a later call continues; one that a person changes to "equivalent" is replaced by
// the next mutant of the seed. No file is edited: this is Vitest's configuration too, with the mutant as a plugin.

const areas: Readonly<Record<string, RegExp>> = {
  peer: /^src\/(?:peer\/(?!elastic|tab\/)|distributed\/(?!spawn|launcher))/,
  exchange: /^src\/(?:graph\/(?:run|plan|trace\/(?:exchange|bucket))|ddp\/(?:data-par|hooks\/))/,
  elastic: /^src\/(?:peer\/elastic|ddp\/(?:elastic|committed|exact)|trainer\/(?:loop|saves))\//,
  optim: /^src\/optim\//,
}
/** Operators and methods. The second of each pair stands in place of the first, and the other way round. */
const pairs = '< <=,> >=,=== !==,&& ||,+ -,+= -=,* /,min max,some every,floor ceil'.split(',')
const swaps = new Map([['%', '*']])
for (const [a, b] of pairs.map((pair) => pair.split(' '))) swaps.set(a, b).set(b, a)

type Mutant = Readonly<
  Record<'id' | 'code' | 'edit', string> & Record<'line' | 'start' | 'end', number>
>
type Part = 'test' | 'left' | 'right' | 'callee' | 'object' | 'property'
interface Node extends Syntax, Readonly<Partial<Record<Part, Syntax>>> {
  readonly operator?: string
  readonly value?: unknown
  readonly alternate?: unknown
}

/** Edits inside functions, but not of errors; an outer one before those in it. */
function mutantsOf(file: string): readonly Mutant[] {
  const text = readFileSync(join(repository, file), 'utf8')
  const found: Mutant[] = []
  const visit = (node: Node, above: Node, isInside: boolean) => {
    const { type, start, end, value, operator = '', left, right } = node
    if (/^(?:TS(?!As|NonNull|Satisf)|Throw|Import|Export(?!Named|Default))/.test(type)) return
    const source = (one: Syntax) => text.slice(one.start, one.end)
    const [line, code] = [text.slice(0, start).split('\n').length, source(node)]
    const canChange = isInside && !/Error\(|console\.|\.name =/.test(code)
    const add = (edit: string) =>
      canChange && found.push({ id: `${file}:${start} ${edit}`, line, code, start, end, edit })
    // A parenthesis that begins a line would continue the line above.
    const isFirst = above.type === 'ExpressionStatement'
    const isText = /\+/.test(operator) && /["'`]/.test(code)
    const swap = swaps.get(operator)
    if (left && right && swap && !isText && (!isFirst || operator.endsWith('=')))
      add(`${source(left)} ${swap} ${source(right)}`)
    const isStatement = /^(?:If|Expression)Statement$/.test(type)
    if (isStatement && !node.alternate && !code.startsWith('super')) add('{}')
    if (/^(?:If|Cond)/.test(above.type) && above.test === node) add(`!(${code})`)
    if (type === 'Literal' && typeof value === 'boolean') add(`${!value}`)
    if (type === 'Literal' && typeof value === 'number') add(`${value + 1}`)
    const { object, property = node } = (node.callee ?? {}) as Node
    const method = swaps.get(source(property))
    if (object && method && !isFirst && above.type !== 'MemberExpression')
      add(`${source(object)}.${method}${text.slice(property.end, end)}`)
    for (const [key, child] of Object.entries(node))
      if (!/^(?:key|type\w*|returnType)$/.test(key))
        for (const one of [child].flat() as (Node | null)[])
          if (one?.type) visit(one, node, isInside || /Function|PropertyDef/.test(type))
  }
  const program: Node = JSON.parse(JSON.stringify(parseSync(file, text).program))
  visit(program, program, false)
  return found
}

const given = process.env.TABRING_MUTANTS
/** Of this run: the mutant in the code; with a file for notes, mutants of which it notes who executes them. */
const { ids, notes }: { ids: string[]; notes?: string } = JSON.parse(given ?? '{ "ids": [] }')
const files = new Set(ids.map((id) => join(repository, id.slice(0, id.indexOf(':')))))

function transform(text: string, path: string): string | undefined {
  if (!files.has(path)) return undefined
  const inserts = mutantsOf(relative(repository, path)).flatMap(
    ({ id, start, end, edit }, order) => {
      if (!ids.includes(id)) return []
      if (!notes) return [{ start, end, order, text: edit }]
      const [open, between, close] = edit === '{}' || edit.includes('-=') ? '{;}' : '(,)'
      const call = `${open}reached__(${JSON.stringify(id)})${between}`
      const after = { start: end, end, order: -1 - order, text: close! }
      return [{ start, end: start, order, text: call }, after]
    },
  )
  inserts.sort((a, b) => b.start - a.start || b.order - a.order)
  for (const one of inserts) text = text.slice(0, one.start) + one.text + text.slice(one.end)
  return `${text}
function reached__(id) {
  const line = JSON.stringify({ id, spec: globalThis.__vitest_worker__?.filepath }) + '\\n'
  const seen = (globalThis.reached__ ??= new Set())
  if (seen.size === seen.add(line).size) return
  process.getBuiltinModule('node:fs').appendFileSync(${JSON.stringify(notes)}, line)
}\n`
}
export default defineConfig({
  ...(config.test!.projects![0] as object),
  root: repository,
  plugins: [{ name: 'mutants', enforce: 'pre', transform }],
})

const pathOf = (name: string) => join(repository, 'test-results', `mutants${name}`)
const [verdicts, reached, report] = ['.jsonl', '-reached.jsonl', '-run.json'].map(pathOf)
const append = (path: string, line: object) => appendFileSync(path, `${JSON.stringify(line)}\n`)
const linesOf = (path: string) =>
  (existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : []).map((line) =>
    JSON.parse(line),
  )

/** What Vitest reports of each spec; undefined where it did not end in time. */
async function run(given: object, args: readonly string[], seconds: number) {
  rmSync(report, { force: true })
  const how = ['run', '--config=scripts/mutants.ts', '--reporter=json', `--outputFile=${report}`]
  const env = { ...process.env, TABRING_MUTANTS: JSON.stringify(given) }
  const options = { cwd: repository, stdio: 'ignore', detached: true, env } as const
  const vitest = spawn('npx', ['vitest', ...how, ...args], options)
  // The whole group: its workers too.
  const end = () => vitest.exitCode === null && process.kill(-vitest.pid!, 'SIGKILL')
  const timer = setTimeout(end, seconds * 1000)
  process.once('exit', end)
  await once(vitest, 'close')
  process.off('exit', end)
  clearTimeout(timer)
  return existsSync(report) ? [...JSON.parse(readFileSync(report, 'utf8')).testResults] : undefined
}

/** Runs five specs, then fifty, then the rest. */
async function judge(id: string, specs: readonly string[]) {
  for (let from = 0, count = 5; from < specs.length; from += count, count *= 10) {
    const ran = await run({ ids: [id] }, ['--bail=1', ...specs.slice(from, from + count)], 900)
    const failed = ran?.find(({ status }) => status === 'failed')
    if (!ran || failed)
      return { verdict: 'killed', by: failed ? relative(repository, failed.name) : 'a hang' }
  }
  return { verdict: specs.length > 0 ? 'survived' : 'not reached', by: `${specs.length} specs` }
}

async function main(seed = 1, perArea = 25): Promise<void> {
  mkdirSync(join(repository, 'test-results'), { recursive: true })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1))
  const names = execFileSync('git', ['ls-files', 'src/*.ts'], { cwd: repository, encoding: 'utf8' })
  const chosen = Object.entries(areas).map(([area, pattern], i) => {
    const own = names.split('\n').filter((name) => pattern.test(name) && !name.endsWith('.d.ts'))
    const all = own.flatMap(mutantsOf)
    return { area, mutants: [...permutation(seed, i, all.length)].map((at) => all[at]!) }
  })
  if (!existsSync(reached)) {
    // Twice as many, for those in place of the equivalent ones. Isolated, so that each spec executes what a worker does once.
    const ids = chosen.flatMap(({ mutants }) => mutants.slice(0, 2 * perArea)).map(({ id }) => id)
    for (const spec of (await run({ ids, notes: reached }, ['--isolate'], 7200)) ?? [])
      append(reached, { spec: spec.name, ms: spec.endTime - spec.startTime, status: spec.status })
  }
  const noted = linesOf(reached)
  // A spec that fails without a mutant kills none.
  const passed = noted.filter(({ status }) => status === 'passed').sort((a, b) => a.ms - b.ms)
  for (const { area, mutants } of chosen) {
    const counts: Record<string, number> = {}
    for (let i = 0, done = 0; done < perArea; i++) {
      const { id, code, line, edit } = mutants[i]!
      const own = new Set(noted.filter((one) => one.id === id).map(({ spec }) => spec))
      const specs = passed.map(({ spec }) => spec).filter((spec) => own.has(spec))
      const known = linesOf(verdicts).find((one) => one.id === id)
      const { verdict, by } = known ?? (await judge(id, specs))
      if (!known) append(verdicts, { id, area, line, code, verdict, by })
      console.log(`${verdict} ${id.split(':')[0]}:${line} ${code} -> ${edit} (${by})`)
      counts[verdict] = (counts[verdict] ?? 0) + 1
      if (verdict !== 'equivalent') done++
    }
    console.log(`${area}: ${JSON.stringify(counts)}`)
  }
}
if (given === undefined) await main(...process.argv.slice(2).map(Number))
