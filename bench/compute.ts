import type { CDPSession, Page } from 'playwright'
import { messageOf } from '../src/util/errors.ts'
import { flops, matmulTasks } from './compute/task.ts'
import type { Host } from './host.ts'
import { failedRow, type PairOptions, type Place, pairRow, type Row, rounded } from './row.ts'
import { median } from './statistics.ts'

/** The peers of the MLP step, and what our time is to be of theirs on the software adapter. */
const mlpPeers = [
  { key: 'jax', name: 'jax-js 0.1.25 WebGPU', goal: 0.7 },
  { key: 'tfjs', name: 'TensorFlow.js 4.22 WebGPU', goal: 0.15 },
  { key: 'jaxWasm', name: 'jax-js 0.1.25 wasm (CPU)', goal: undefined },
] as const
const matmulPeers = [
  { key: 'jax', name: 'jax-js 0.1.25 WebGPU' },
  { key: 'tfjs', name: 'TensorFlow.js 4.22 WebGPU' },
] as const
/** Limits on our own step; the same on every adapter. */
const ownGoals = { dispatches: 10, submits: 1, encodeUsPerDispatch: 2, buffers: 0, bindGroups: 0 }

const stepsPerBlock = 12

export interface ComputePage {
  page: Page
  devtools: CDPSession
  adapter: string
  software: boolean
  cores: number
}

type Note = (line: string) => void

/** Opens the page and its device. errors: the page's, such as `gpu.unavailable`. */
export async function openCompute({ browser, url }: Host): Promise<ComputePage> {
  const page = await browser.newPage()
  await page.goto(`${url}page.html`)
  await page.waitForFunction(() => window.bench !== undefined)
  const { facts, isIsolated, cores } = await page.evaluate(() => window.bench.open())
  if (!isIsolated)
    throw new Error('the bench page is not cross-origin isolated: its clock is coarse')
  const devtools = await page.context().newCDPSession(page)
  // CPU time of the thread: time that other processes take does not count.
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  return {
    page,
    devtools,
    adapter: `${facts.vendor} ${facts.architecture}`.trim(),
    software: facts.isSoftware,
    cores,
  }
}

/** The MLP step, ours beside each peer, in blocks that take turns; and what our own step is made of. */
export async function mlpRows(
  { page, devtools }: ComputePage,
  place: Place,
  rounds: number,
  note: Note,
): Promise<Row[]> {
  const keys = ['tabring', ...mlpPeers.map(({ key }) => key)]
  const failures = new Map<string, string>()
  const details = new Map<string, Record<string, unknown>>()
  for (const key of keys) {
    try {
      note(`mlp: ${key}: five steps against the oracle`)
      const { losses, worst, firstStepMs } = await page.evaluate(
        (given) => window.bench.load(given),
        key,
      )
      note(`mlp: ${key}: first steps discarded, running ahead`)
      const runAheadMs = await page.evaluate((given) => window.bench.calibrate(given), key)
      details.set(key, {
        runAhead: await page.evaluate((given) => window.bench.runAheadOf(given), key),
        runAheadMs: mapValues(runAheadMs, rounded),
        losses: losses.map((loss) => Number(loss.toPrecision(8))),
        lossDifference: Number(worst.toPrecision(2)),
        firstStepMs: rounded(firstStepMs),
      })
    } catch (thrown) {
      failures.set(key, oneLine(messageOf(thrown)))
    }
  }

  const loaded = keys.filter((key) => !failures.has(key))
  note(`mlp: ${rounds} rounds of ${stepsPerBlock} steps each`)
  const results = await page.evaluate(
    ([given, count, steps]) => window.bench.mlpRounds(given, count, steps),
    [loaded, rounds, stepsPerBlock] as const,
  )
  const msOf = (key: string): number[] => {
    const result = results[key]
    if (Array.isArray(result)) return result
    if (result) failures.set(key, oneLine(result.error))
    return []
  }
  const ours = msOf('tabring')

  for (const key of loaded) {
    if (failures.has(key)) continue
    note(`mlp: ${key}: calls and main-thread time of a step`)
    const calls = await page.evaluate((given) => window.bench.calls(given), key)
    Object.assign(details.get(key)!, {
      callsPerStep: mapValues(calls, rounded),
      mainThreadUsPerStep: rounded(await mainThreadUsPerStep(page, devtools, key)),
    })
  }
  const profile = failures.has('tabring')
    ? undefined
    : await page.evaluate(() => window.bench.profile())

  const rows = mlpPeers.map(({ key, name, goal }): Row => {
    const options: PairOptions = {
      row: 'mlp step, batch 64',
      peer: name,
      unit: 'ms',
      better: 'lower',
      goal,
      extra: {
        stepsPerBlock,
        oursDetail: details.get('tabring'),
        theirsDetail: details.get(key),
      },
    }
    const theirs = msOf(key)
    const failure = failures.has('tabring')
      ? `Tabring: ${failures.get('tabring')}`
      : failures.get(key)
    if (failure !== undefined) return failedRow(options, place, failure, ours)
    return pairRow(options, place, ours, theirs)
  })
  if (profile) rows.push(...ownRows(place, details.get('tabring')!, profile))
  return rows
}

type Profile = Awaited<ReturnType<typeof window.bench.profile>>

/** Our own step's limits, as rows of the same form: "theirs" is the limit. */
function ownRows(place: Place, detail: Record<string, unknown>, profile: Profile): Row[] {
  const calls = detail.callsPerStep as Record<string, number>
  const row = (name: string, ours: number, limit: number | undefined, unit: string): Row => ({
    row: `mlp step: ${name}`,
    ours: rounded(ours),
    peer: limit === undefined ? 'none' : 'limit',
    theirs: limit ?? null,
    ratio: limit ? rounded(ours / limit) : null,
    adapter: place.adapter,
    software: place.software,
    unit,
    better: 'lower',
    ...(limit === undefined ? {} : { goal: limit, isReached: ours <= limit }),
    browser: place.browser,
  })
  const kernels = profile.kernels.map(({ label, groups, us }) => ({
    label,
    groups,
    us: rounded(us),
  }))
  return [
    row('dispatches', calls.dispatches, ownGoals.dispatches, ''),
    row('submits', calls.submits, ownGoals.submits, ''),
    row('buffers created', calls.buffers, ownGoals.buffers, ''),
    row('bind groups created', calls.bindGroups, ownGoals.bindGroups, ''),
    row('bytes uploaded', calls.bytesUploaded, undefined, 'B'),
    {
      ...row(
        'encoding, a dispatch',
        profile.encodeUsPerDispatch,
        ownGoals.encodeUsPerDispatch,
        'µs',
      ),
      oursSpread: profile.encodeUsSpread.map(rounded),
    },
    {
      ...row('whole encoder, a dispatch', profile.wholeEncodeUsPerDispatch, undefined, 'µs'),
      oursSpread: profile.wholeEncodeUsSpread.map(rounded),
    },
    row('beginning the pass, once', profile.beginPassUs, undefined, 'µs'),
    row('encoding, a dispatch, caches warm', profile.warmEncodeUsPerDispatch, undefined, 'µs'),
    row('JavaScript until submitted', profile.stepJsUs, undefined, 'µs'),
    row('main thread, whole step', detail.mainThreadUsPerStep as number, undefined, 'µs'),
    {
      ...row(
        'all kernels',
        kernels.reduce((sum, { us }) => sum + us, 0),
        undefined,
        'µs',
      ),
      kernels,
      chosen: profile.chosen,
    },
  ]
}

/** CPU time of the page's main thread per step, as the browser counts it: all JavaScript, and what WebGPU does in the page. */
async function mainThreadUsPerStep(page: Page, devtools: CDPSession, key: string): Promise<number> {
  const taskSeconds = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics')
    return metrics.find(({ name }) => name === 'TaskDuration')?.value ?? Number.NaN
  }
  const run = async (count: number): Promise<number> => {
    const before = await taskSeconds()
    await page.evaluate(([given, steps]) => window.bench.steps(given, steps), [key, count] as const)
    return (await taskSeconds()) - before
  }
  const samples: number[] = []
  for (let sample = 0; sample < 3; sample++) {
    // What the call itself costs falls out of the difference.
    const short = await run(2)
    samples.push((((await run(22)) - short) * 1e6) / 20)
  }
  return median(samples)
}

/** Products alone, ours beside each peer. */
export async function matmulRows(
  { page }: ComputePage,
  place: Place,
  rounds: number,
  note: Note,
): Promise<Row[]> {
  const rows: Row[] = []
  for (const [index, task] of matmulTasks.entries()) {
    note(`${task.name}, ${rounds} rounds`)
    const options = (peer: string, variant?: string): PairOptions => ({
      row: task.name,
      peer,
      unit: 'GFLOP/s',
      better: 'higher',
      extra: { variant, flops: flops(task) },
    })
    try {
      const { rounds: results, variant } = await page.evaluate(
        ([given, count]) => window.bench.matmulRounds(given, count),
        [index, rounds] as const,
      )
      const ours = results.tabring
      for (const { key, name } of matmulPeers) {
        const theirs = results[key]
        if (Array.isArray(ours) && Array.isArray(theirs)) {
          rows.push(pairRow(options(name, variant), place, ours, theirs))
          continue
        }
        const failures = { Tabring: ours, [name]: theirs }
        const error = Object.entries(failures)
          .map(([who, one]) => (Array.isArray(one) ? '' : `${who}: ${one.error}`))
          .join(' ')
        const measured = Array.isArray(ours) ? ours : []
        rows.push(failedRow(options(name, variant), place, oneLine(error), measured))
      }
    } catch (thrown) {
      for (const { name } of matmulPeers)
        rows.push(failedRow(options(name), place, oneLine(messageOf(thrown))))
    }
  }
  return rows
}

const oneLine = (text: string): string => text.trim().split('\n')[0].slice(0, 400)

const mapValues = <T extends object>(values: T, change: (value: number) => number): T =>
  Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, change(value as number)]),
  ) as T
