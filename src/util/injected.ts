/** What a launcher puts into a tab before any script of the page runs. */
export interface InjectedEnvironment {
  variables: Readonly<Record<string, string>>
  readonly args: readonly string[]
}

/** The name of the global under which a launcher puts it. */
export const injectedName = '__tabringEnvironment'
