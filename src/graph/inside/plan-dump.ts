import { variantKey } from '../../kernels/choose.ts'
import type { Op, OpCall } from '../../kernels/op.ts'
import { switchValue } from '../../util/switches.ts'
import type { Runtime } from '../memory/runtime.ts'
import type { Place } from '../plan/plan.ts'
import type { Prepared } from '../plan/prepare.ts'
import type { ProgramMemory } from '../plan/step-program.ts'
import { formatTypes } from '../trace/format-call.ts'

/** Where a tensor lies: `shared 0 +4096`. */
function formatPlace(place: Place): string {
  switch (place.kind) {
    case 'input':
      return `input ${place.name}`
    case 'output':
      return `output ${place.index}`
    case 'shared':
      return `shared ${place.object} +${place.offset}`
    case 'pool':
      return `pool +${place.start * 4}`
    case 'stored':
      return place.tensor.name
    case 'scalars':
      return 'scalars'
  }
}

/** Why an op runs as the variant that was chosen for it. */
function reasonOf(op: Op, call: OpCall, name: string, { variants, limits }: Runtime): string {
  if (op.variants.length === 1) return 'the only one'
  if (switchValue('variant')[op.name] === name) return 'forced'
  if (variants[variantKey(op, call)] === name) return 'measured, or from the record'
  if (op.preferred?.(call, limits) === name) return 'fixed table'
  return name === op.variants[0].name
    ? 'naive: requested, or the only one that can run'
    : 'the first that can run'
}

/** `debug=3`: what a program is made of, as text for a console. */
export function describePlan(prepared: Prepared, memory: ProgramMemory, runtime: Runtime): string {
  const { plan, calls, chosen, updates } = prepared
  const users = new Map<number, Set<number>>()
  const ops = calls.map(({ op, call }, i) => {
    const name = chosen[variantKey(op, call)]
    const start = i === 0 ? 0 : plan.endOfNode[i - 1]
    const dispatches = plan.dispatches.slice(start, plan.endOfNode[i]).map((planned, at) => {
      const { dispatch, bindings } = planned
      const places = bindings.map(({ place }, binding) => {
        if (place.kind === 'shared') {
          const offsets = users.get(place.object) ?? new Set<number>()
          users.set(place.object, offsets.add(place.offset))
        }
        const { name: variable, access } = dispatch.bindings[binding]
        return `${variable}${access === 'read' ? '' : '*'} ${formatPlace(place)}`
      })
      return `    ${start + at} ${dispatch.groups.join('x')} groups: ${places.join(', ')}`
    })
    const why = reasonOf(op, call, name, runtime)
    return [`  ${op.name}(${formatTypes(call.inputs)}) ${name} (${why})`, ...dispatches].join('\n')
  })
  const shared = plan.sharedBytes.map(
    (bytes, i) => `  shared ${i}: ${bytes} bytes, tensors at ${users.get(i)?.size ?? 0} offsets`,
  )
  const buckets = updates.map(({ update: { bucket }, gradientsEnd }, i) => {
    const names = bucket.parameters.map(({ name }) => name)
    return `  bucket ${i}: ${bucket.elements} elements, gradients complete after ${gradientsEnd} dispatches: ${names.join(', ')}`
  })
  return [
    `${calls.length} ops, ${plan.dispatches.length} dispatches; intermediates ${plan.peakBytes} bytes at the peak, lower bound ${plan.lowerBoundBytes}; inputs, outputs and readback ${memory.ioBytes} bytes`,
    ...shared,
    ...buckets,
    'ops and the places of their tensors, * where written:',
    ...ops,
  ].join('\n')
}
