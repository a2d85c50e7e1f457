import { experiments } from '../../demos/experiments.ts'
import type { Experiments } from '../../src/trainer/settings/experiments.ts'
import * as runCsv from '../../src/ui/run/run-csv.ts'
import * as runMemory from '../../src/ui/run/run-memory.ts'
import * as runWords from '../../src/ui/run/run-words.ts'
import * as check from '../../src/ui/settings/check.ts'
import * as draft from '../../src/ui/settings/draft.ts'
import * as list from '../../src/ui/settings/list.ts'
import * as query from '../../src/ui/settings/query.ts'

/** A function of the page, with the experiments of the demos handed in. */
const withExperiments =
  <Rest extends unknown[], Result>(act: (experiments: Experiments, ...rest: Rest) => Result) =>
  (...rest: Rest): Result =>
    act(experiments, ...rest)

export const checkDraft = withExperiments(check.checkDraft)
export const choicesOf = withExperiments(list.choicesOf)
export const defaultDraftOf = withExperiments(draft.defaultDraftOf)
export const defaultDraft = defaultDraftOf()
export const describeSetting = withExperiments(draft.describeSetting)
export const differingColumns = withExperiments(runWords.differingColumns)
export const draftFromQuery = withExperiments(query.draftFromQuery)
export const fittingBatch = withExperiments(check.fittingBatch)
export const lossCsv = withExperiments(runCsv.lossCsv)
export const queryOf = withExperiments(query.queryOf)
export const recallRuns = withExperiments(runMemory.recallRuns)
export const withSetting = withExperiments(draft.withSetting)
