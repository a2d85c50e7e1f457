import { settingsHashWords } from '../../graph/trace/settings-check.ts'
import { gradientWeight, type Trace } from '../../graph/trace/trace.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { StepGroup } from '../../peer/group/group-sync-points.ts'
import { TabringError } from '../../util/errors.ts'
import { isTexts } from '../../util/kind-of.ts'
import { Sections } from '../../util/sections.ts'
import { samplesError, samplesOf } from './agree-on-samples.ts'

const keys = { words: 0, numbers: 1, samples: 2 } as const

/** Allowed error of a sum of weights: users divide in floats. */
const weightTolerance = 1e-4

/**
 * Compares, as a step with updates begins, the optimizer's settings in each of its groups, and checks that gradient weights add up to 1 over
 * the groups that average gradients. In groups that divide layers, compares what the step computes of, see `samplesOf`.
 *
 * cost: an all-gather of 18 words in each group, beside forward; of 34 in groups that divide layers. errors: on all ranks, before anything
 * is updated: `peer.mismatch` for settings, or samples, that differ; `graph.misuse` for weights that do not add up, or that only some ranks gave.
 */
export async function agreeOnSettings(trace: Trace, groups: readonly StepGroup[]): Promise<void> {
  const { consistency, scalars, updates } = trace
  if (updates.length === 0) return
  const isWeighed = scalars.has(gradientWeight) && scalars.wasSet(gradientWeight)
  const given = isWeighed ? scalars.valueOf(gradientWeight) : 0
  const parameters = updates.flatMap(({ bucket }) => bucket.parameters)
  const dividesLayers = (group: object) =>
    parameters.some((one) => one.sharedBy === group && !one.isShard)
  const samples = groups.some(({ group }) => dividesLayers(group)) ? samplesOf(trace) : undefined
  trace.given = undefined
  let weight = given
  let averaged = 1
  for (const { group, sequence } of groups) {
    const averages = parameters.some(
      (one) => one.replicatedBy === group || (one.isShard && one.sharedBy === group),
    )
    const seen = dividesLayers(group) ? samples : undefined
    const sections = new Sections({
      settings: settingsHashWords,
      isWeighed: 1,
      weight: 1,
      samples: seen ? settingsHashWords : 0,
    })
    const own = sections.write(new Float32Array(sections.length), {
      settings: consistency.words(group),
      isWeighed: Number(isWeighed),
      weight,
      samples: seen?.words() ?? [],
    })
    const all = await group.allGatherConcat(own, { sequence, bucket: keys.words })
    const rows = sections.rows(all)
    const differ = (name: 'settings' | 'isWeighed' | 'weight' | 'samples') =>
      new Set(rows.map((row) => sections.of(row, name).join())).size > 1
    // Ranks that see the same samples weigh them the same.
    if (differ('settings') || (!averages && (differ('isWeighed') || differ('weight')))) {
      const weights = averages ? [] : [`gradientWeight ${isWeighed ? given : 'none'}`]
      const key = { sequence, bucket: keys.numbers }
      await consistency.comparison(group)(
        (own) => gatherJson('optimizer settings', group, own, isTexts, key),
        group.ranks,
        weights,
      )
    }
    if (differ('samples')) {
      const key = { sequence, bucket: keys.samples }
      const received = await gatherJson('samples', group, seen!.numbers()(), isTexts, key)
      throw samplesError(received, group.ranks)
    }
    if (!averages) continue
    const received = rows.map((row) => sections.read(row))
    const weighed = received.filter((one) => one.isWeighed === 1).length
    if (weighed > 0 && weighed < group.size) {
      throw new TabringError(
        'graph.misuse',
        `${gradientWeight}: all ranks must pass it, or none, but ${weighed} of ${group.size} ranks passed it. Pass it on all of them, or remove it.`,
      )
    }
    weight = received.reduce((sum, one) => sum + one.weight, 0)
    averaged *= group.size
  }
  consistency.agreed()
  if (!isWeighed || averaged === 1 || Math.abs(weight - 1) <= weightTolerance) return
  throw new TabringError(
    'graph.misuse',
    `${gradientWeight}: the weights of the ${averaged} ranks must add up to 1, got ${Number(weight.toPrecision(6))}. On each rank, divide its number of samples by the total over all ranks, or remove it.`,
  )
}
