import { clipped } from '../util/clipped.ts'
import { TabringError } from '../util/errors.ts'
import type { Module } from './module.ts'

/**
 * Gives a layer its settings as fields, for reading: programs that were compiled have their values.
 *
 * Setting one is an error, `graph.misuse`; a field that nobody reads would take any value in silence.
 */
export function showSettings(layer: Module, settings: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(settings)) {
    Object.defineProperty(layer, name, {
      get: () => value,
      set: () => {
        const where = clipped(layer.constructor.name)
        throw new TabringError(
          'graph.misuse',
          `${where}: ${name} is fixed when the layer is made. Make a new ${where} with another ${name}, and compile again.`,
        )
      },
    })
  }
}
