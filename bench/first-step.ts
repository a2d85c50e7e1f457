import { messageOf } from '../src/util/errors.ts'
import type { Library, StepName } from './compute/task.ts'
import { type Note, oneLine, type PeerKey, peerNames } from './compute.ts'
import type { Host } from './host.ts'
import { failedRow, type PairOptions, type Place, pairRow, type Row } from './row.ts'
import { cpuRows, fasterPeer, stepBenches } from './step.ts'

/** Rounds are few, since each takes seconds and compiles everything again. */
const rounds = 3
/** What our time is to be of the faster WebGPU peer's. */
const goal = 1

/** Time from the library's code to its first loss, each in a fresh page of a fresh profile, so that no cache is warm. */
export async function firstStepRows(
  { browser, url }: Host,
  step: StepName,
  place: Place,
  note: Note,
): Promise<Row[]> {
  const { name, peers } = stepBenches[step]
  const keys: readonly Library[] = ['tabring', 'tabringCpu', ...peers]
  const msByKey = new Map<string, number[]>(keys.map((key) => [key, []]))
  const failures = new Map<string, string>()
  for (let round = 0; round < rounds; round++) {
    for (let at = 0; at < keys.length; at++) {
      const key = keys[(round + at) % keys.length]
      if (failures.has(key)) continue
      note(`first ${step} step, round ${round + 1}: ${key}`)
      const context = await browser.newContext()
      try {
        const page = await context.newPage()
        await page.goto(`${url}page.html`)
        await page.waitForFunction(() => window.bench !== undefined)
        const ms = await page.evaluate(
          ([given, library]) => window.bench.firstStep(given, library),
          [step, key] as const,
        )
        msByKey.get(key)!.push(ms)
      } catch (thrown) {
        failures.set(key, oneLine(messageOf(thrown)))
      } finally {
        await context.close()
      }
    }
  }
  const msOf = (key: string) => (failures.has(key) ? [] : msByKey.get(key)!)
  const fastest = fasterPeer(msOf)
  const rows = peers.map((key: PeerKey): Row => {
    const options: PairOptions = {
      row: `first ${name}`,
      peer: peerNames[key],
      unit: 'ms',
      better: 'lower',
      goal: key === fastest ? goal : undefined,
    }
    const failure = failures.get('tabring') ?? failures.get(key)
    if (failure !== undefined) return failedRow(options, place, failure, msOf('tabring'))
    return pairRow(options, place, msOf('tabring'), msOf(key))
  })
  return [...rows, ...cpuRows({ jaxWasm: goal }, `first ${name}`, place, msOf, failures)]
}
