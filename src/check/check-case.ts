import { difference } from '../kernels/difference.ts'
import { callOf, defaultSeed, drawInputs } from '../kernels/draw.ts'
import type { Case, HostArray, Op, Variant } from '../kernels/op.ts'
import { type OpDevice, type OpRun, runOp } from './run-op.ts'

/** For `huge` cases the absolute tolerance grows with the tensor's largest magnitude, since terms cancel. */
function scaleOf(test: Case, expected: HostArray): number {
  let scale = 1
  if (test.fill !== 'huge') return scale
  for (const value of expected) if (Number.isFinite(value)) scale = Math.max(scale, Math.abs(value))
  return scale
}

/**
 * Runs one variant on one case, twice, and returns everything that is wrong, or undefined.
 *
 * Checked: outputs and updated inputs against the reference, guard words, untouched inputs, nothing unwritten, and
 * equal bits in both runs.
 */
export async function checkCase<A>(
  device: OpDevice,
  op: Op<A>,
  variant: Variant<A>,
  test: Case<A>,
  seed = defaultSeed,
): Promise<string | undefined> {
  const call = callOf(op, test)
  const inputs = drawInputs(test, seed)
  const referenceInputs = inputs.map((values) => values.slice())
  // The scalars buffer holds float32, so the reference reads the rounded numbers too.
  const scalars = (test.scalars ?? []).map(Math.fround)
  const expected = op.reference(referenceInputs, call, scalars)
  // A view has no kernel; its output is its input's memory.
  if (op.isView) return undefined
  const run = await runOp(device, op, variant, call, inputs, scalars)
  const again = await runOp(device, op, variant, call, inputs, scalars)

  const updated = op.updates ?? []
  const outputs = op.isInPlace ? [] : call.outputs
  const wanted = [...outputs.map((_, i) => expected[i]), ...updated.map((i) => referenceInputs[i])]
  const types = [...outputs, ...updated.map((i) => call.inputs[i])]
  const names = [
    ...outputs.map((_, i) => `output ${i}`),
    ...updated.map((i) => `updated input ${i}`),
  ]
  const words = (of: OpRun) => [...of.outputs, ...of.updated]
  const problems: string[] = []
  if (expected.length !== call.outputs.length) {
    problems.push(
      `the reference returns ${expected.length} outputs, infer says ${call.outputs.length}`,
    )
  }
  words(run).forEach((got, i) => {
    const scale = scaleOf(test as Case, wanted[i])
    const wrong = difference(got, wanted[i], types[i], op.tolerance, scale)
    if (wrong) problems.push(`${names[i]}: ${wrong}`)
    const second = words(again)[i]
    const differing = got.findIndex((word, at) => word !== second[at])
    if (differing >= 0) problems.push(`${names[i]}: two runs differ, first at [${differing}]`)
  })
  if (run.unwritten > 0) problems.push(`${run.unwritten} output elements were never written`)
  if (!run.guardsIntact) problems.push('a guard word was overwritten: a write outside the tensor')
  if (!run.inputsIntact) problems.push('an input that is only read was changed')
  return problems.length === 0
    ? undefined
    : [`${op.name}, variant ${variant.name}, case "${test.name}", seed ${seed}:`, ...problems].join(
        '\n',
      )
}
