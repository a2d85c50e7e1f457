import type { StepLayout } from '../trace/exchange.ts'
import type { Prepared } from './prepare.ts'

/** Returns the part of a prepared step that must be equal on all ranks. */
export function layoutOf({ trace, syncPoints, sharedBuffers }: Prepared): StepLayout {
  const { exchange, reached, updates } = trace
  return {
    unused: (exchange?.parameters ?? [])
      .filter((parameter) => parameter.requiresGrad && !reached.has(parameter))
      .map(({ name }) => name),
    buckets: updates.map(({ bucket: { elements, parameters } }) =>
      [elements, ...parameters.map(({ name }) => name)].join(' '),
    ),
    syncPoints: syncPoints.map(({ group }) => group),
    sharedBuffers: sharedBuffers.length,
    samples: trace.weighing?.samples,
    fixed: trace.consistency.fixed,
  }
}
