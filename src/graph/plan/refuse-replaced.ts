import { TabringError } from '../../util/errors.ts'
import { withArticle } from '../../util/with-article.ts'
import type { Moded } from '../trace/trace.ts'
import {
  type GraphNode,
  type Holding,
  holdingsOf,
  type StoredLeaf,
  storedIn,
} from '../trace/value.ts'

/** The parameters and buffers that nodes read. */
const tensorsIn = (nodes: readonly GraphNode[]): Set<StoredLeaf> =>
  new Set(nodes.flatMap(({ inputs }) => inputs.flatMap((value) => storedIn(value) ?? [])))

/**
 * Returns what refuses a run once a module has another parameter, buffer or module where the step read or updates these, or more of them.
 *
 * `modules`: some that the step went through, and whether each still has its parts.
 * Tensors that a step reads though no module has them are not looked after. cost: reading each property once a run.
 */
export function refuseReplaced(
  nodes: readonly GraphNode[],
  updated: readonly StoredLeaf[],
  modules: ReadonlyMap<object, () => boolean>,
): () => void {
  const holdings = new Map<Holding, StoredLeaf>()
  for (const tensor of [...tensorsIn(nodes), ...updated]) {
    const own = [...holdingsOf(tensor)]
    if (own.every((holding) => holding.isKept()))
      for (const holding of own) if (!holdings.has(holding)) holdings.set(holding, tensor)
  }
  const holders = new Set([...holdings.keys()].map(({ holder }) => holder))
  const watched = [...modules, ...[...holders].map((one) => [one, one.watchParts()] as const)]
  return () => {
    for (const [holding, { title, dividedBy }] of holdings) {
      // A parameter that ranks have divided since throws when its contents are read.
      if (dividedBy || holding.isKept()) continue
      throw new TabringError(
        'graph.misuse',
        `run: the step was compiled with ${title}, in whose place the model now has something else. Compile the step again, with an optimizer for the parameters that the model has now.`,
      )
    }
    const changed = watched.find(([, isSame]) => !isSame())
    if (!changed) return
    throw new TabringError(
      'graph.misuse',
      `run: the step was compiled with other parameters or layers of ${withArticle(changed[0].constructor.name)} than it has now. Compile the step again, with an optimizer for the parameters that the model has now.`,
    )
  }
}

/**
 * Returns what refuses a run once a parameter of a step that computes gradients is frozen or unfrozen for no step: none that was compiled
 * later has read its `requiresGrad`.
 */
export function refuseOtherGradients(nodes: readonly GraphNode[]): () => void {
  const parameters = [...tensorsIn(nodes)].filter(
    ({ isGradChanged }) => isGradChanged !== undefined,
  )
  const known = parameters.map((tensor) => [tensor, tensor.requiresGrad] as const)
  return () => {
    for (const [{ requiresGrad, isGradChanged, title }, was] of known) {
      if (!isGradChanged || requiresGrad === was) continue
      throw new TabringError(
        'graph.misuse',
        `run: the step was compiled with requiresGrad = ${was} of ${title}, which is now ${requiresGrad}. Compile the step again: it ${requiresGrad ? 'gives it no gradient' : 'goes on giving it one'}.`,
      )
    }
  }
}

/** In which modes steps have been compiled. */
const compiledModes = new WeakMap<Moded, Set<boolean>>()

/**
 * Returns what refuses a run once a module is in a mode that the step does not have, and that no step was compiled in.
 *
 * A function that changes the mode itself, and back, is not looked after.
 */
export function refuseOtherModes(modes: ReadonlyMap<Moded, boolean>): () => void {
  const kept = [...modes].filter(([module, training]) => module.training === training)
  for (const [module, training] of kept) {
    const all = compiledModes.get(module) ?? new Set()
    compiledModes.set(module, all.add(training))
  }
  return () => {
    const changed = kept.find(
      ([module, was]) => module.training !== was && !compiledModes.get(module)!.has(!was),
    )
    if (!changed) return
    const [module, was] = changed
    const [compiled, now] = was ? ['training', 'evaluation'] : ['evaluation', 'training']
    throw new TabringError(
      'graph.misuse',
      `run: the step was compiled with ${module.constructor.name} in ${compiled} mode, and the module is in ${now} mode now. Compile a step in ${now} mode, or call ${was ? 'train' : 'eval'}() before the run.`,
    )
  }
}
