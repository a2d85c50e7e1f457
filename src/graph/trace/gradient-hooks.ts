import { ShapeError, TabringError } from '../../util/errors.ts'
import { formatShape, sameShape } from '../../util/shape.ts'
import { requiresGradient } from './backward.ts'
import { mustBeTensor, type Tensor, TracedTensor } from './tensor.ts'
import { activeTrace } from './trace.ts'
import type { GradientHook, GraphValue } from './value.ts'

/** Functions of the user that backward calls with a gradient when it is complete. */

/** A registered hook; `remove()` unregisters it. */
export interface HookHandle {
  /** Removes the hook from later traces and backward passes; compiled programs keep its effect. */
  remove(): void
}

/** Calls `hook` with the loss's gradient by one tensor: the method `registerHook`. */
export function registerHook(
  x: Tensor,
  hook: (gradient: Tensor) => Tensor | undefined,
): HookHandle {
  const { leaf } = x.value
  const isRequired =
    leaf?.kind === 'parameter'
      ? leaf.parameter.requiresGrad
      : requiresGradient(activeTrace('registerHook'), x.value)
  if (!isRequired) {
    throw new TabringError(
      'graph.misuse',
      'registerHook: this tensor does not require a gradient. Register the hook on a parameter, on a tensor computed from one, or after requiresGrad_().',
    )
  }
  return hookGradients([x], ([gradient]) => gradient && [hook(gradient)])
}

type Gradients = readonly (Tensor | undefined)[]

/**
 * Calls `hook` in backward with the gradients of tensors that are complete at the same time: one tensor, or aliases made in a row.
 *
 * What it returns replaces the gradients; undefined keeps them all, an undefined entry that one.
 */
export function hookGradients(
  tensors: readonly Tensor[],
  hook: (gradients: Gradients) => Gradients | undefined,
): HookHandle {
  const entry: GradientHook = {
    values: tensors.map(({ value }) => value),
    run(gradients) {
      const given = gradients.map((gradient) => gradient && new TracedTensor(gradient))
      const returned = hook(given) ?? []
      return gradients.map((gradient, i) => {
        const replaced = returned[i]
        return replaced && replaced !== given[i] ? inPlaceOf(gradient, replaced) : gradient
      })
    },
  }
  for (const { value } of tensors) {
    value.hooks ??= new Set()
    value.hooks.add(entry)
  }
  return { remove: () => entry.values.forEach((value) => void value.hooks?.delete(entry)) }
}

/** The value that a hook returned, in the type of the gradient that it got. */
function inPlaceOf(gradient: GraphValue | undefined, replaced: Tensor): GraphValue {
  mustBeTensor('hook', { 'what it returned': replaced })
  if (!gradient || !sameShape(replaced.shape, gradient.type.shape)) {
    throw new ShapeError(
      'shape.mismatch',
      `hook: expected ${gradient ? `a gradient of ${formatShape(gradient.type.shape)}` : 'nothing, since there is no gradient'}, got ${formatShape(replaced.shape)}. Return a gradient with the shape of the one that the hook received.`,
    )
  }
  return (gradient.type.dtype === 'f16' ? replaced.half() : replaced.float()).value
}
