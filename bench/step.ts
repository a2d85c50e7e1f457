import type { CDPSession, Page } from 'playwright'
import { messageOf } from '../src/util/errors.ts'
import type { Library, StepName } from './compute/task.ts'
import {
  type ComputePage,
  mapValues,
  type Note,
  oneLine,
  type PeerKey,
  peerNames,
  webgpuPeers,
} from './compute.ts'
import { ownRows } from './own-step.ts'
import { failedRow, type PairOptions, type Place, pairRow, type Row, rounded } from './row.ts'
import { median } from './statistics.ts'

interface StepBench {
  name: string
  /** Steps that are timed together. */
  blockSteps: number
  peers: readonly PeerKey[]
  /** What our time is to be of a peer's, on the software adapter. */
  goals: Partial<Record<PeerKey | 'faster', number>>
  /** What the device cpu's time is to be of the WebAssembly peer's, and of our own step on the software adapter. */
  cpuGoals: { jaxWasm: number; tabring?: number }
}

export const stepBenches: Readonly<Record<StepName, StepBench>> = {
  mlp: {
    name: 'mlp step, batch 64',
    blockSteps: 12,
    peers: ['jax', 'tfjs', 'jaxWasm'],
    goals: { jax: 0.6, tfjs: 0.15 },
    cpuGoals: { jaxWasm: 1 },
  },
  cnn: {
    name: 'cnn step, batch 64',
    blockSteps: 6,
    peers: ['jax', 'tfjs', 'jaxWasm'],
    goals: { faster: 0.5 },
    cpuGoals: { jaxWasm: 0.05, tabring: 0.6 },
  },
  gpt: {
    name: 'gpt step, 2 layers, width 64, batch 8 x 64',
    blockSteps: 4,
    peers: ['jax', 'tfjs', 'jaxWasm'],
    goals: { jax: 0.6 },
    cpuGoals: { jaxWasm: 0.9 },
  },
}

/** The WebGPU peer whose median is the lower one; undefined where none was measured. */
export function fasterPeer(msOf: (key: PeerKey) => readonly number[]): PeerKey | undefined {
  const measured = webgpuPeers.filter((key) => msOf(key).length > 0)
  return measured.sort((a, b) => median(msOf(a)) - median(msOf(b)))[0]
}

/** A training step, ours beside each peer, in blocks that take turns; and what our own step is made of. */
export async function stepRows(
  { page, devtools }: ComputePage,
  step: StepName,
  place: Place,
  rounds: number,
  note: Note,
): Promise<Row[]> {
  const { name, blockSteps, peers, goals } = stepBenches[step]
  const keys: readonly Library[] = ['tabring', 'tabringCpu', ...peers]
  const failures = new Map<string, string>()
  const details = new Map<string, Record<string, unknown>>()
  await page.evaluate((given) => window.bench.prepare(given), step)
  for (const key of keys) {
    try {
      note(`${step}: ${key}: first steps against PyTorch's losses`)
      const { losses, worst, isSlow } = await page.evaluate(
        ([given, library]) => window.bench.load(given, library),
        [step, key] as const,
      )
      note(`${step}: ${key}: first steps discarded, running ahead`)
      const runAheadMs = await page.evaluate(
        ([library, steps]) => window.bench.calibrate(library, steps),
        [key, Math.ceil(blockSteps / 2)] as const,
      )
      details.set(key, {
        runAhead: await page.evaluate((given) => window.bench.runAheadOf(given), key),
        runAheadMs: mapValues(runAheadMs, rounded),
        losses: losses.map((loss) => Number(loss.toPrecision(8))),
        lossDifference: Number(worst.toPrecision(2)),
        isSlow,
      })
    } catch (thrown) {
      failures.set(key, oneLine(messageOf(thrown)))
    }
  }

  const loaded = keys.filter((key) => !failures.has(key))
  note(`${step}: ${rounds} rounds of ${blockSteps} steps each`)
  const results = await page.evaluate(
    ([given, count, steps]) => window.bench.stepRounds(given, count, steps),
    [loaded, rounds, blockSteps] as const,
  )
  const msByKey = new Map<string, number[]>()
  for (const [key, result] of Object.entries(results)) {
    if (Array.isArray(result)) msByKey.set(key, result)
    else failures.set(key, oneLine(result.error))
  }
  const msOf = (key: string): number[] => msByKey.get(key) ?? []

  for (const key of loaded) {
    if (failures.has(key)) continue
    note(`${step}: ${key}: calls and main-thread time of a step`)
    const detail = details.get(key)!
    const steps = detail.isSlow ? 1 : blockSteps
    const calls = await page.evaluate(([given, count]) => window.bench.calls(given, count), [
      key,
      steps,
    ] as const)
    detail.callsPerStep = mapValues(calls, rounded)
    if (detail.isSlow) continue
    detail.mainThreadUsPerStep = rounded(await mainThreadUsPerStep(page, devtools, key, steps))
  }

  const fastest = fasterPeer(msOf)
  const rows = peers.map((key): Row => {
    const options: PairOptions = {
      row: name,
      peer: peerNames[key],
      unit: 'ms',
      better: 'lower',
      goal: goals[key] ?? (key === fastest ? goals.faster : undefined),
      extra: {
        blockSteps,
        oursDetail: details.get('tabring'),
        theirsDetail: details.get(key),
      },
    }
    const failure = failures.has('tabring')
      ? `Tabring: ${failures.get('tabring')}`
      : failures.get(key)
    if (failure !== undefined) return failedRow(options, place, failure, msOf('tabring'))
    return pairRow(options, place, msOf('tabring'), msOf(key))
  })
  rows.push(...cpuRows(stepBenches[step].cpuGoals, name, place, msOf, failures))
  if (failures.has('tabring')) return rows
  note(`${step}: our own step`)
  const profile = await page.evaluate(() => window.bench.profile())
  const perLayer =
    step === 'gpt' ? await page.evaluate(() => window.bench.dispatchesPerLayer()) : undefined
  return [...rows, ...ownRows(step, place, details.get('tabring')!, profile, perLayer)]
}

/** The device cpu beside the peer that uses WebAssembly, and beside our own step on the adapter. */
export function cpuRows(
  goals: StepBench['cpuGoals'],
  name: string,
  place: Place,
  msOf: (key: Library) => readonly number[],
  failures: ReadonlyMap<string, string>,
): Row[] {
  const others = { jaxWasm: peerNames.jaxWasm, tabring: 'Tabring WebGPU' } as const
  return (Object.keys(others) as (keyof typeof others)[]).map((key): Row => {
    const options: PairOptions = {
      row: `${name}, device cpu`,
      peer: others[key],
      unit: 'ms',
      better: 'lower',
      goal: goals[key],
    }
    const failure = failures.get('tabringCpu') ?? failures.get(key)
    return failure === undefined
      ? pairRow(options, place, msOf('tabringCpu'), msOf(key))
      : failedRow(options, place, failure, msOf('tabringCpu'))
  })
}

/** CPU time of the page's main thread per step, as the browser counts it: all JavaScript, and what WebGPU does in the page. */
async function mainThreadUsPerStep(
  page: Page,
  devtools: CDPSession,
  key: string,
  steps: number,
): Promise<number> {
  const taskSeconds = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics')
    return metrics.find(({ name }) => name === 'TaskDuration')?.value ?? Number.NaN
  }
  const run = async (count: number): Promise<number> => {
    const before = await taskSeconds()
    await page.evaluate(([given, many]) => window.bench.steps(given, many), [key, count] as const)
    return (await taskSeconds()) - before
  }
  const samples: number[] = []
  for (let sample = 0; sample < 3; sample++) {
    // What the call itself costs falls out of the difference.
    const short = await run(1)
    samples.push((((await run(1 + steps)) - short) * 1e6) / steps)
  }
  return median(samples)
}
