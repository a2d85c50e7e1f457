/** What the switches `debug` and `trace` look into a GPU's programs with, loaded where one of them asks for it. */
export { describePlan } from './plan-dump.ts'
export { Profile } from './profile.ts'
export { ValueCheck } from './value-check.ts'
