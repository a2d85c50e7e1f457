import { deathTests } from '../../support/deaths.ts'

deathTests(['closed'])
