package kip33.oracle.log;

import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that stands still until it is set. */
public final class FixedTime implements Time {
    private volatile long now;

    public FixedTime(long now) {
        this.now = now;
    }

    void set(long now) {
        this.now = now;
    }

    @Override
    public long milliseconds() {
        return now;
    }

    @Override
    public long nanoseconds() {
        return TimeUnit.MILLISECONDS.toNanos(now);
    }

    @Override
    public void sleep(long ms) {
        throw new UnsupportedOperationException("nobody sleeps here");
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("nobody waits here");
    }
}
