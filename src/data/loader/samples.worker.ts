import { serveSamples } from './serve-samples.ts'

// The loader's own worker: it makes the data set anew from the loader's description.
serveSamples()
