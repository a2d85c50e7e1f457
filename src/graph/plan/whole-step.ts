import type { Memory } from '../memory/memory-device.ts'
import type { GradientExchange, StepLayout } from '../trace/exchange.ts'
import type { Parameter } from '../trace/parameter.ts'
import type { Trace } from '../trace/trace.ts'
import type { Prepared } from './prepare.ts'
import type { StepProgram } from './step-program.ts'

/** The step of which a traced function is one part, where each rank runs that part several times in a step. */
export interface WholeStep {
  readonly exchange: GradientExchange<Parameter>
  /** Returns the part of it that must be equal on all ranks. errors: `graph.misuse` for a function that cannot be such a part, `config.invalid` for a device that cannot run it. */
  layoutOf(prepared: Prepared, memory: Memory): StepLayout
  /** Makes its memory, before the part's program is made. */
  allocate(memory: Memory): void
  /** Frees it. */
  destroy(): void
  /** Makes it of the part's program. */
  stepOf(program: StepProgram): StepProgram
}

/** By the trace of the part. */
export const wholeSteps = new WeakMap<Trace, WholeStep>()
