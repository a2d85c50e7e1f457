import { experimentsOf } from '../src/trainer/settings/experiments.ts'
import { metas } from './metas.ts'

/** The demos as the pages and the command train them; their entry points hand it in. */
export const experiments = experimentsOf(metas)

export const { metaOf, defaultsOf, parseTrainConfig } = experiments
