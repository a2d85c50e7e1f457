import type { ViewProps } from './view-props.ts'

/** Returns whether this tab's model was untrained when it got it: not where the run resumes, or was on before this tab. */
export const isFromScratch = ({ run, config }: Pick<ViewProps, 'run' | 'config'>): boolean =>
  !(run?.config ?? config)?.resume && !run?.resumed && !run?.joins
