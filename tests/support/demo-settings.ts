import { experiments } from '../../demos/experiments.ts'
import type { Experiments } from '../../src/trainer/settings/experiments.ts'
import * as runCsv from '../../src/ui/run/run-csv.ts'
import * as runMemory from '../../src/ui/run/run-memory.ts'
import * as runWords from '../../src/ui/run/run-words.ts'
import * as check from '../../src/ui/settings/check.ts'
import * as draft from '../../src/ui/settings/draft.ts'
import * as list from '../../src/ui/settings/list.ts'
import * as query from '../../src/ui/settings/query.ts'

/** What the page does with the settings of the demos: its functions, with the demos handed in. */
const ofDemos =
  <Rest extends unknown[], Result>(act: (experiments: Experiments, ...rest: Rest) => Result) =>
  (...rest: Rest): Result =>
    act(experiments, ...rest)

export const checkDraft = ofDemos(check.checkDraft)
export const choicesOf = ofDemos(list.choicesOf)
export const defaultDraftOf = ofDemos(draft.defaultDraftOf)
export const defaultDraft = defaultDraftOf()
export const describeSetting = ofDemos(draft.describeSetting)
export const differingColumns = ofDemos(runWords.differingColumns)
export const draftFromQuery = ofDemos(query.draftFromQuery)
export const fittingBatch = ofDemos(check.fittingBatch)
export const lossCsv = ofDemos(runCsv.lossCsv)
export const queryOf = ofDemos(query.queryOf)
export const recallRuns = ofDemos(runMemory.recallRuns)
export const withSetting = ofDemos(draft.withSetting)
