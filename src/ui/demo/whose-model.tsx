import type { Run } from '../state/run.ts'
import { hasOwnModels } from '../state/run-facts.ts'

/** Where ranks train without an exchange: whose model a view shows that shows one. */
export const WhoseModel = ({ run }: { run: Run | null }) =>
  run && hasOwnModels(run) ? (
    <p class="quiet">
      The exchange is off, so each rank has its own model: this is rank {run.rank}'s.
    </p>
  ) : null
