import { TabringError } from '../../util/errors.ts'
import type { Moded } from '../trace/trace.ts'
import { type GraphNode, type Holding, type StoredLeaf, storedIn } from '../trace/value.ts'

/** Every place in which a tensor is held, from its module's to the outermost one. */
function* holdingsOf({ heldAt }: StoredLeaf): Iterable<Holding> {
  for (let holding = heldAt; holding; holding = holding.within) yield holding
}

/**
 * Returns what refuses a run once a module has another parameter, buffer or module where the step read these.
 *
 * Tensors that a step reads though no module has them are not looked after. cost: reading each property once a run.
 */
export function refuseReplaced(nodes: readonly GraphNode[]): () => void {
  const holdings = new Map<Holding, StoredLeaf>()
  for (const tensor of new Set(nodes.flatMap(({ inputs }) => inputs.map(storedIn)))) {
    const own = tensor ? [...holdingsOf(tensor)] : []
    if (own.every((holding) => holding.isKept()))
      for (const holding of own) if (!holdings.has(holding)) holdings.set(holding, tensor!)
  }
  return () => {
    for (const [holding, { title, dividedBy }] of holdings) {
      // What ranks have divided since says so where its contents are read.
      if (dividedBy || holding.isKept()) continue
      throw new TabringError(
        'graph.misuse',
        `run: the step was compiled with ${title}, in whose place the model now has something else. Compile the step again, with an optimizer for the parameters that the model has now.`,
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
