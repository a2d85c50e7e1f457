import { Module } from '../../nn/module.ts'
import { Optimizer } from '../../optim/optimizer.ts'
import { TabringError } from '../../util/errors.ts'

/**
 * Watches the steps of the parts' parameters. What it returns throws if one ran since, or was under way: then what was read or loaded
 * meanwhile is partly of the state before it, partly of that after it.
 *
 * errors: `graph.misuse`.
 */
export function watchSteps(where: string, parts: Readonly<Record<string, unknown>>): () => void {
  const updates = new Set(
    Object.values(parts)
      .flatMap((part) => {
        if (part instanceof Module) return part.parameters()
        return part instanceof Optimizer ? part.paramGroups.flatMap(({ params }) => params) : []
      })
      .map((parameter) => parameter.updates),
  )
  const begun = () => [...updates].reduce((sum, one) => sum + one.begun, 0)
  const before = begun()
  const wasUnderWay = [...updates].some(({ begun, ended }) => begun > ended)
  return () => {
    if (!wasUnderWay && begun() === before) return
    throw new TabringError(
      'graph.misuse',
      `${where}: a step ran at the same time, so parts of the state are of different steps. Await run() before it, and await ${where} before the next run().`,
    )
  }
}
