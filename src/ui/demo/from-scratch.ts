import type { ViewProps } from './view-props.ts'

/** Returns whether this tab's model was untrained when it got it: not where the run resumes, was on before this tab, or is the others' alone. */
export const isFromScratch = ({
  run,
  config,
  isOthers,
}: Pick<ViewProps, 'run' | 'config' | 'isOthers'>): boolean =>
  !(run?.config ?? config)?.resume && !run?.resumed && !run?.joins && !(isOthers && run === null)
